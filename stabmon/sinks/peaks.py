"""Maxima over the last minute, whoever scrapes and however rarely."""

from __future__ import annotations

import numpy as np

from stabmon.catalog import PEAKS, Array
from stabmon.records import Layout, Snapshot
from stabmon.runlog.tail import Chunk

WINDOW_SECONDS = 60
_KEPT = WINDOW_SECONDS + 1
"""Whole seconds, of which the newest has only begun."""


class Peaks:
    """Of each second the maxima, in a ring: memory does not grow with steps.

    The window ends at the last step and not at the scrape: there is always a step in it, however slow steps are.
    """

    def __init__(self, layout: Layout) -> None:
        nothing = Snapshot(0, 0.0, np.zeros(len(layout.columns), dtype=np.float32), layout)
        self.sizes = {name: nothing[name].size for name in PEAKS}
        """Sites of each statistic; 0: not taken."""
        self._names = [name for name, size in self.sizes.items() if size]
        self._ring = np.full((_KEPT, sum(self.sizes.values())), np.nan, dtype=np.float32)
        self._seconds = np.full(_KEPT, -1, dtype=np.int64)
        """Unix second of each row of the ring."""
        self._newest = 0

    def add(self, chunk: Chunk) -> None:
        """Further rows, in order."""
        if not self._names:
            return
        seconds = np.floor(chunk.times).astype(np.int64)
        starts = np.flatnonzero(np.diff(seconds, prepend=seconds[0] - 1))
        highest = np.fmax.reduceat(np.concatenate([chunk[name] for name in self._names]), starts, axis=1)
        for second, row in zip(seconds[starts][-_KEPT:].tolist(), highest.T[-_KEPT:], strict=True):
            place = second % _KEPT
            if self._seconds[place] == second:
                row = np.fmax(row, self._ring[place])
            self._ring[place], self._seconds[place] = row, second
        self._newest = int(seconds[-1])

    def now(self) -> Array:
        """float32[site], statistic by statistic in the order of PEAKS; NaN where nothing was read in the window."""
        within = (self._seconds >= self._newest - WINDOW_SECONDS) & (self._seconds <= self._newest)
        highest: Array = np.fmax.reduce(self._ring[within], axis=0, initial=np.nan)
        return highest
