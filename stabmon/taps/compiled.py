"""How hooks get along with torch.compile: what runs while a graph is traced, and what no graph may depend on.

A graph is compiled anew once anything that its tracing read has changed. So a traced hook reads one thing that changes,
whether layers are due, which makes two graphs; all else it asks a function that is `settled_by_tracing`.
"""

from __future__ import annotations

from collections.abc import Callable
from types import CodeType
from typing import Any, TypeVar

import torch
from torch import nn

_Asked = TypeVar("_Asked", bound=Callable[..., Any])


def settled_by_tracing(ask: _Asked) -> _Asked:
    """`ask` runs as Python while a graph is traced, and the graph keeps the answer without depending on what was read.

    A trace may begin again, and happens once more for another graph: asking twice must do what asking once does.
    """
    asked: _Asked = torch.compiler.assume_constant_result(ask)
    return asked


def never_a_graph(code: CodeType) -> None:
    """A frame of this code is no graph of its own; traced as a part of another frame it is."""
    try:
        from torch._dynamo.eval_frame import skip_code
    except ImportError:  # then it costs a graph
        return
    skip_code(code)


class Tracing:
    """What is known of the compiler."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Another model is watched from here on."""
        self.on = False
        """Whether the hook that runs was called with the compiler on, which compiles what is called after it."""
        self.near = False
        """Whether any was so, or was traced."""
        self.seen = False
        """Whether a graph was traced with hooks of ours in it: to remove one then has the graph compiled anew."""

    @settled_by_tracing
    def see(self) -> bool:
        """Called while one is."""
        self.near = self.seen = True
        return True


def compiled_inside(model: nn.Module) -> bool:
    """Whether parts of it are compiled by themselves, or it is in place."""
    return any(
        getattr(module, "_compiled_call_impl", None) is not None or isinstance(module, torch._dynamo.OptimizedModule)
        for module in model.modules()
    )


def anything_compiled() -> bool:
    """Whether this process has made graphs."""
    return bool(torch._dynamo.utils.counters["stats"])


class Late:
    """A Monitor made after a model's first compiled call: graphs know of no hook, so steps that are read run eagerly.

    That is found out in the first step, in which nothing is seen, and tried in the second.
    """

    def __init__(self) -> None:
        self._suspected = self._known = False
        self._unseen = 0
        self._stance: Any = None

    def suspect(self, unseen: int, uncalled: bool) -> bool:
        """After the first step: whether to look again, eagerly. `unseen`: layers that were not called, as far as seen;
        `uncalled`: no call of the model was seen at all."""
        if self._suspected:
            self._known = unseen < self._unseen
            return False
        self._unseen = unseen
        near = tracing.near or (uncalled and anything_compiled())
        self._suspected = unseen > 0 and near and not tracing.seen
        return self._suspected

    @property
    def known(self) -> bool:
        """Whether it was right to look again."""
        return self._known

    def arm(self, due: bool, first: bool) -> None:
        """Switch the compiler off for a step that is read, or back on."""
        eager = self._known and due or self._suspected and first
        if eager and self._stance is None:
            self._stance = torch.compiler.set_stance("force_eager")
        elif not eager:
            self.release()

    def release(self) -> None:
        """Back on, as it was found."""
        if self._stance is not None:
            self._stance.__exit__(None, None, None)
            self._stance = None


tracing = Tracing()
"""Of this process."""
