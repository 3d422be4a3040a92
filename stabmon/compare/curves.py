"""What comparing keeps of a run: every loss, and a bounded number of readings."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import numpy as np

from stabmon.records import BATCH_SIZE, Alert, Event, RunState, Snapshot

CAPACITY = 1000
"""Ranges of steps of which the last reading is kept, and up to twice as many while it fills."""


class Curves:
    """A sink. `rows`: of each range of `width` steps the values last read in it; width is a power of two, so that two
    runs can be brought to the same ranges.
    """

    name = "curves"

    def __init__(self) -> None:
        self.width = 1
        self.rows: dict[int, Snapshot] = {}
        self.batch_size: float | str | None = None
        self._steps = array("q")
        self._losses = array("d")

    def emit(self, snapshot: Snapshot, alerts: Sequence[Alert], events: Sequence[Event]) -> None:
        self._steps.append(snapshot.step)
        self._losses.append(snapshot.scalar("loss"))
        self._put(snapshot)
        if len(self.rows) > 2 * CAPACITY:
            self.widen(2 * self.width)
        for event in events:
            if event.kind == BATCH_SIZE:
                self.batch_size = event.detail.get("size")

    def close(self, state: RunState) -> None:
        """Nothing to let go of."""

    @property
    def first_step(self) -> int:
        """Of those that are kept; there must be one."""
        return min(snapshot.step for snapshot in self.rows.values())

    @property
    def last_step(self) -> int:
        """As first_step."""
        return max(snapshot.step for snapshot in self.rows.values())

    def losses(self) -> tuple[np.ndarray[tuple[int], np.dtype[np.int64]], np.ndarray[tuple[int], np.dtype[np.float64]]]:
        """Steps, rising, and the loss at each, where there is one; of a step that was taken twice, the later one."""
        latest = {step: loss for step, loss in zip(self._steps, self._losses, strict=True) if loss == loss}
        steps = sorted(latest)
        return np.array(steps, dtype=np.int64), np.array([latest[step] for step in steps], dtype=np.float64)

    def widen(self, width: int) -> None:
        """Fewer ranges, of that many steps each."""
        if width == self.width:
            return
        before, self.rows, self.width = self.rows, {}, width
        for snapshot in before.values():
            self._put(snapshot)

    def _put(self, snapshot: Snapshot) -> None:
        place = snapshot.step // self.width
        held = self.rows.get(place)
        if held is not None and held.layout is snapshot.layout:
            values = np.where(np.isnan(snapshot.values), held.values, snapshot.values)
            snapshot = Snapshot(snapshot.step, snapshot.time, values, snapshot.layout)
        self.rows[place] = snapshot
