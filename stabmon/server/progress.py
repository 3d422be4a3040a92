"""How far a run is: when it will end, and which checkpoint it could go back to."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from stabmon.records import CHECKPOINT, PLANNED, Event
from stabmon.runlog.tail import Chunk

_NEWEST = 10
"""Stretches of the course, a third of it, whose median is the pace: evaluations count, a stop does not."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """One that was written and not deleted, as far as is known."""

    step: int
    time: float
    name: str
    """The last part of its path; "" where it is not known."""


class Progress:
    """What events told of it."""

    def __init__(self) -> None:
        self.planned: int | None = None
        """Steps that the run is to have in all."""
        self.saves = False
        """Whether any checkpoint was told of."""
        self._there: dict[int, Checkpoint] = {}

    def take(self, events: Iterable[Event]) -> None:
        for event in events:
            if event.kind == PLANNED:
                self.planned = int(event.detail["steps"])
            elif event.kind == CHECKPOINT:
                self.saves = True
                self._there[event.step] = Checkpoint(event.step, event.time, str(event.detail.get("name", "")))
                for step in str(event.detail.get("gone", "")).split():
                    self._there.pop(int(step), None)

    def checkpoint(self, before: int | None = None) -> Checkpoint | None:
        """The last one, or the last of before that step."""
        return max(
            (one for one in self._there.values() if before is None or one.step < before),
            key=lambda one: one.step,
            default=None,
        )


def pace(course: Sequence[Chunk]) -> float | None:
    """Seconds a step of late, from rows that lie evenly over the run; None where it is not known."""
    if not course:
        return None
    steps, times = (np.concatenate(parts) for parts in zip(*((c.steps, c.times) for c in course), strict=True))
    walked, took = np.diff(steps), np.diff(times)
    known = (walked > 0) & (took > 0)
    found = (took[known] / walked[known])[-_NEWEST:]
    return float(np.median(found)) if found.size else None


def left(seconds: float) -> str:
    """ "some 3 h 20 min left": no more exact than it can be."""
    minutes = seconds / 60
    if minutes < 1.5:
        return "about a minute left"
    if minutes < 55:
        return f"some {round(minutes) if minutes < 10 else 5 * round(minutes / 5)} min left"
    hours, tens = divmod(round(minutes / 10), 6)
    if hours < 10:
        return f"some {hours} h{f' {tens}0 min' if tens else ''} left"
    return f"some {round(minutes / 60)} h left" if minutes < 48 * 60 else f"some {round(minutes / 1440)} d left"
