"""A hook that stays with its own model: copies and pickles of the model get one that does nothing."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, ClassVar

import torch
from torch._C._dynamo.eval_frame import set_eval_frame

from stabmon.taps.compiled import never_a_graph, tracing


class _Open(threading.local):
    """How deep a thread stands in a stopwatch, and since when."""

    depth = 0
    since = 0.0


class Stopwatch:
    """Host seconds spent while it is open, by its clock; what is nested in one thread counts once."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.clock = time.perf_counter
        self._open = _Open()
        self._adding = threading.Lock()

    def __enter__(self) -> None:
        self._open.depth += 1
        if self._open.depth == 1:
            self._open.since = self.clock()

    def __exit__(self, *_: object) -> None:
        self._open.depth -= 1
        if self._open.depth == 0:
            with self._adding:
                self.seconds += self.clock() - self._open.since


spent = Stopwatch()
"""Open wherever stabmon does work inside a training: the seconds are of all monitors of this process."""


class _Silent(threading.local):
    """Whether this thread runs a model for stabmon."""

    now = False


_silent = _Silent()


def transformed() -> bool:
    """True inside `torch.func.grad`, `vmap` and the like, whose tensors can neither be kept nor added to ours."""
    return torch._C._functorch.peek_interpreter_stack() is not None


class Hook:
    """Calls `do`; an exception goes to `failed` once and silences it, since one in a hook would end the training.

    It is traced with the module that it hangs on. Around what is traced it runs eagerly: a compiled module's own hooks
    are called with the compiler on, and would be graphs.
    """

    silenced: ClassVar[frozenset[int]] = frozenset()
    """Ids of the modules and parameters that stabmon itself runs at the moment."""

    def __init__(self, do: Callable[..., None], failed: Callable[[Exception], None]) -> None:
        self._do: Callable[..., None] | None = do
        self._failed = failed

    def __call__(self, *args: Any) -> None:
        if self._do is None:
            return
        if torch.compiler.is_compiling():
            tracing.see()
            self._guarded(args)
            return
        if _silent.now or (args and id(args[0]) in Hook.silenced):
            return
        compiler = set_eval_frame(None)
        tracing.on = compiler is not None
        tracing.near |= tracing.on
        try:
            if not transformed():  # with the compiler on, to ask would be a graph
                self._guarded(args)
        finally:
            set_eval_frame(compiler)

    def _guarded(self, args: tuple[Any, ...]) -> None:
        if self._do is None:
            return
        try:
            self._do(*args)
        except Exception as error:
            self._do = None
            self._failed(error)

    def __deepcopy__(self, memo: dict[int, Any]) -> Callable[..., None]:
        return nullcontext().__exit__

    def __reduce__(self) -> tuple[Any, ...]:
        # From the standard library, so that the pickle loads where stabmon is not installed.
        return getattr, (nullcontext(), "__exit__")


@contextmanager
def silence(owners: Iterable[object]) -> Iterator[None]:
    """No hook does anything in this thread, and none on these modules and parameters in any: on a GPU a backward, and
    the forwards that it computes again, run in threads of the device, which other trainings share.

    For one thread at a time; compiled graphs are not reached.
    """
    before = _silent.now, Hook.silenced
    _silent.now, Hook.silenced = True, Hook.silenced | {id(owner) for owner in owners}
    try:
        yield
    finally:
        _silent.now, Hook.silenced = before


never_a_graph(Hook.__call__.__code__)
