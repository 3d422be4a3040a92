"""A hook that stays with its own model: copies and pickles of the model get one that does nothing."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, ClassVar

import torch
from torch._C._dynamo.eval_frame import set_eval_frame

from stabmon.taps.compiled import never_a_graph, tracing


class Stopwatch:
    """Host seconds spent while it is open, by its clock; what is nested counts once."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.clock = time.perf_counter
        self._depth = 0
        self._since = 0.0

    def __enter__(self) -> None:
        self._depth += 1
        if self._depth == 1:
            self._since = self.clock()

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        if self._depth == 0:
            self.seconds += self.clock() - self._since


spent = Stopwatch()
"""Open wherever stabmon does work inside a training: the seconds are of all monitors of this process."""


class Hook:
    """Calls `do`; an exception goes to `failed` once and silences it, since one in a hook would end the training.

    It is traced with the module that it hangs on. Around what is traced it runs eagerly: a compiled module's own hooks
    are called with the compiler on, and would be graphs.
    """

    silent: ClassVar[bool] = False
    """True while stabmon itself runs the model."""

    def __init__(self, do: Callable[..., None], failed: Callable[[Exception], None]) -> None:
        self._do: Callable[..., None] | None = do
        self._failed = failed

    def __call__(self, *args: Any) -> None:
        if self._do is None or Hook.silent:
            return
        if torch.compiler.is_compiling():
            tracing.see()
            self._guarded(args)
            return
        compiler = set_eval_frame(None)
        tracing.on = compiler is not None
        tracing.near |= tracing.on
        try:
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


never_a_graph(Hook.__call__.__code__)
