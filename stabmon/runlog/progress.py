"""What events tell of a run's end and of its checkpoints."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from stabmon.records import CHECKPOINT, PLANNED, Event
from stabmon.runlog.tail import Tail

_MEANT = re.compile(r"checkpoint( from)? before step \d+(,\d{3})*")


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


def events_of(path: Path) -> list[Event]:
    """All of a run log. Errors: those of `stabmon.runlog.read`."""
    return [event for _, event in Tail(path, 0).poll().events]


def named(remedy: str, checkpoint: Checkpoint | None) -> str:
    """Which checkpoint it means: "... a checkpoint before step 312 (step 300)"."""
    return _MEANT.sub(rf"\g<0> (step {checkpoint.step:,})", remedy) if checkpoint else remedy
