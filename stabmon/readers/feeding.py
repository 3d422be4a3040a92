"""Readings -> what the pipeline is fed: rows of one step united, restarts told, evaluations handed on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import inf, isfinite, isnan, nan

import numpy as np

from stabmon.readers.reading import LARGEST, Notes, Reading
from stabmon.readers.remarks import Remarks
from stabmon.readers.united import United, later
from stabmon.records import EVALUATION, RESUME, Event, Layout, Site, Snapshot

_NAMES = ("loss", "total_grad_sq", "learning_rate", "eval_loss")
LAYOUT = Layout(tuple((name, "") for name in _NAMES), (Site(""),))
SKIPPING = Layout((*LAYOUT.columns, ("skipped_steps", "")), LAYOUT.sites)
"""Where the log tells of steps that the loss scaler skipped."""
Fed = tuple[Snapshot, list[Event]]
UNIX = 1e9
"""Seconds above which a time is one of the calendar, not one since the start."""
_TINY = float(np.finfo(np.float32).tiny)


class Feeding:
    """Turns readings into snapshots; of a following source, None asks it to hand out what it holds back."""

    def __init__(self, started: float, notes: Notes) -> None:
        self.seen: set[str] = set()
        self.timed = False
        self._remarks = Remarks(notes)
        self._united = United(self._remarks)
        self._started, self._clock = started, -inf
        self._rows = 0
        self._step, self._epoch, self._offset = -1, nan, 0
        self._apart = 1
        """The last two steps."""
        self._evaluation = nan
        self._patterns: set[tuple[bool, ...]] = set()

    def feeds(self, readings: Iterable[Reading | None]) -> Iterator[Fed]:
        """In the file's order."""
        for reading in readings:
            if (fed := self.push(reading)) is not None:
                yield fed
        yield from self.end()

    def push(self, reading: Reading | None) -> Fed | None:
        """What became certain by it: of a step before."""
        held = self._united.push(reading)
        return None if held is None else self._told(held)

    def end(self) -> Iterator[Fed]:
        """What was held back."""
        if (fed := self.push(None)) is not None:
            yield fed
        if not isnan(self._evaluation):
            yield self._snapshot(Reading(max(self._step - self._offset, 0), epoch=self._epoch))
        self._remarks.close()

    def _told(self, reading: Reading) -> Fed | None:
        if reading.eval_loss == reading.eval_loss:
            self._evaluation = reading.eval_loss
        return self._snapshot(reading) if reading.trained else None

    def _snapshot(self, reading: Reading) -> Fed:
        self._rows += 1
        time = self._time(reading.time)
        step, events = self._placed(reading, time)
        evaluation = self._evaluation
        if evaluation == evaluation:
            events.append(Event(step, time, EVALUATION, {"eval_loss": evaluation}))
            self._evaluation = nan
        square = _square(reading.grad_norm)
        values = [reading.loss, square, reading.learning_rate, evaluation]
        self._remarks.see(step, reading, evaluation)
        layout = LAYOUT
        if reading.skipped == reading.skipped:
            layout = SKIPPING
            values.append(reading.skipped)
        if (pattern := tuple([value == value for value in values])) not in self._patterns:
            self._patterns.add(pattern)
            self.seen |= {name for (name, _), read in zip(layout.columns, pattern, strict=True) if read}
        return Snapshot(step, time, np.array(values, np.float32), layout), events

    def _placed(self, reading: Reading, time: float) -> tuple[int, list[Event]]:
        """Its step in the run, and whether it goes back."""
        step = self._step + 1 if reading.step is None else reading.step + self._offset
        events: list[Event] = []
        if reading.step is None:
            step = self._step + 1 if self._step >= 0 else 1
        elif step <= self._step and later(reading.epoch, self._epoch):
            # What is counted from 0 goes on one interval after the last, not in the same step.
            self._offset = self._step + (0 if reading.step else self._apart)
            step = self._offset + reading.step
            self._remarks.counted_by_epoch()
        elif step < self._step:
            events.append(Event(step, time, RESUME, {"at": step}))
            self._remarks.went_back(self._step, step)
        self._apart = step - self._step if 0 <= self._step < step else self._apart
        self._step = step
        self._epoch = self._epoch if isnan(reading.epoch) else reading.epoch
        return step, events

    def _time(self, told: float) -> float:
        """Unix seconds that never go back; without any in the file, rows are a second apart."""
        if isfinite(told):
            self.timed = True
            self._clock = max(self._clock, told if told > UNIX else self._started + told)
        elif not self.timed:
            self._clock = self._started + self._rows
        return self._clock


def _square(norm: float) -> float:
    """A finite norm's square stays finite and over 0 in float32."""
    if not isfinite(norm) or norm == 0:
        return norm
    return min(max(norm * norm, _TINY), LARGEST)
