"""What cannot be looked at in this model: said in the log at once, and told with the next row."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass

_log = logging.getLogger("stabmon")


@dataclass(frozen=True, slots=True)
class Notice:
    """`message` goes to the log; `what`, a phrase, and `why` and `todo`, sentences, are for the run's page."""

    message: str
    what: str
    why: str
    todo: str = ""
    in_callback: Notice | None = None
    """What is said in its place to whoever has only put a callback into a trainer; None: it fits there too."""


NO_BASELINES = "so no baseline losses are told, and a stall is warned of but never called critical"
"""What a user loses by it."""
LATE = Notice(
    message="the model, or one like it in this process, was compiled and called before this Monitor was made, so the "
    "graphs do not know of it. Steps in which layers are read run without torch.compile: slower, and rounded as an "
    "eager step is; its first step is not read. To have neither, make it before the model's first forward, and after "
    "another training in this process call torch._dynamo.reset() before it",
    what="the first step",
    why="The model, or one like it in this process, was compiled and called before the Monitor was made.",
    todo="Make the Monitor before the model's first forward, or call torch._dynamo.reset() before it.",
    in_callback=Notice(
        message="the model, or one like it in this process, was compiled and called before this training began, so the "
        "graphs do not know of stabmon. Steps in which layers are read run without torch.compile: slower, and rounded "
        "as an eager step is; its first step is not read. To have neither, call torch._dynamo.reset() before each "
        "training",
        what="the first step",
        why="The model, or one like it in this process, was compiled and called before this training began.",
        todo="Call torch._dynamo.reset() before each training.",
    ),
)
IN_PIECES = Notice(
    message="the loop calls the model in pieces, so the output change of an update is not read; to have it read, "
    "give probe=batch and forward=function(model, batch) that calls the pieces and returns their output",
    what="the output change of an update",
    why="The loop calls the model in pieces.",
    todo="Give probe=batch and forward=function(model, batch) that calls the pieces.",
)


class Notices:
    """Kept until somebody takes them."""

    def __init__(self, callback: bool = False) -> None:
        self.callback = callback
        """Whether a trainer's callback makes the Monitor and calls it."""
        self.said: Callable[[], None] = lambda: None
        """Called when there is one that no row will take along."""
        self._new: list[Notice] = []

    def say(self, notice: Notice, level: int = logging.WARNING, alone: bool = False) -> None:
        """In the log at once; `alone`: steps do not come."""
        if self.callback and notice.in_callback is not None:
            notice = notice.in_callback
        _log.log(level, "stabmon: %s", notice.message)
        self._new.append(notice)
        if alone:
            self.said()

    def take(self) -> list[Mapping[str, str]]:
        """Those that are new, as an event tells them."""
        found, self._new = self._new, []
        return [{"what": notice.what, "why": notice.why, "todo": notice.todo} for notice in found]
