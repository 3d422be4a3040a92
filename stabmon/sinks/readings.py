"""What /metrics tells of all rows so far: newest values, maxima, totals. Rows are folded in by the batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from stabmon.catalog import Array
from stabmon.catalog.served import COST, DURATION, SKIPPED, SOURCES
from stabmon.records import Snapshot
from stabmon.runlog.tail import Chunk
from stabmon.sinks.peaks import Peaks

BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)
"""Of the step times' histogram, in seconds."""


@dataclass(frozen=True, slots=True)
class Totals:
    """Of every step so far."""

    steps: int = 0
    monitor_seconds: float = 0.0
    durations: tuple[int, ...] = (0,) * (len(BOUNDS) + 1)
    """Steps up to each bound, and all that have a duration."""
    duration_sum: float = 0.0
    nonfinite: tuple[int, ...] = (0,) * len(SOURCES)


@dataclass(frozen=True, slots=True)
class View:
    """All of it as of one moment."""

    totals: Totals
    latest: Snapshot | None
    """The newest step, with the value last read wherever it has none itself; None before the first."""
    peaks: Array
    """As `Peaks.now`."""


class Readings:
    """Add rows, then have a view. Not for several threads at once."""

    def __init__(self) -> None:
        self._totals = Totals()
        self._latest: Snapshot | None = None
        self._peaks: Peaks | None = None

    def view(self) -> View:
        peaks = self._peaks.now() if self._peaks else np.empty(0, dtype=np.float32)
        return View(self._totals, self._latest, peaks)

    def add(self, chunk: Chunk, counted: bool = True) -> None:
        """A changed layout forgets the old one's values, but no total. What is not counted is in no total."""
        latest, before = chunk.last(), self._latest
        if before is not None and before.layout == chunk.layout:
            values = np.where(np.isnan(latest.values), before.values, latest.values)
            latest = replace(latest, values=values, layout=before.layout)
        else:
            self._peaks = Peaks(chunk.layout)
        assert self._peaks is not None
        self._peaks.add(chunk)
        if counted:
            self._totals = _added(self._totals, chunk)
        self._latest = latest


def together(rows: Sequence[Snapshot]) -> Chunk:
    """Snapshots of one layout as rows."""
    values = np.stack([row.values for row in rows], axis=1)
    steps = np.array([row.step for row in rows], dtype=np.int64)
    times = np.array([row.time for row in rows])
    return Chunk(rows[0].layout, steps, steps, times, values, np.ones(len(rows), dtype=np.bool_))


def _added(before: Totals, chunk: Chunk) -> Totals:
    durations = chunk[DURATION].astype(np.float64)
    durations = durations[~np.isnan(durations)]
    upto = [*((durations <= bound).sum() for bound in BOUNDS), durations.size]
    counted = ~(chunk[SKIPPED] > 0).any(axis=0) if chunk[SKIPPED].size else np.ones(len(chunk.rows), dtype=np.bool_)
    broken = [int((_infinite(chunk, names) & counted).sum()) for names in SOURCES.values()]
    return Totals(
        before.steps + len(chunk.rows),
        before.monitor_seconds + float(np.nansum(chunk[COST], dtype=np.float64)),
        tuple(a + int(b) for a, b in zip(before.durations, upto, strict=True)),
        before.duration_sum + float(durations.sum()),
        tuple(a + b for a, b in zip(before.nonfinite, broken, strict=True)),
    )


def _infinite(chunk: Chunk, names: Sequence[str]) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    """bool[row]: whether any value of those stored statistics was read and is not finite."""
    slots = np.concatenate([chunk.layout.slots(name) for name in names])
    found: np.ndarray[tuple[int, ...], np.dtype[np.bool_]] = np.isinf(chunk.values[slots]).any(axis=0)
    return found
