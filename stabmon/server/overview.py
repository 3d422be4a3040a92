"""A run of any length in bounded memory: rows are merged into buckets that keep the lowest and the highest value."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from stabmon.catalog import Array

Column = tuple[str, str]
"""Statistic and site."""
Ints = np.ndarray[tuple[int, ...], np.dtype[np.int64]]
Times = np.ndarray[tuple[int, ...], np.dtype[np.float64]]


class Overview:
    """At most `capacity` buckets of `width` rows each; when they do not suffice, neighbours become one.

    Arrays are aligned: `rows`, `steps` (the last of each bucket) int64[bucket], `times` (of that step) float64[bucket];
    `low`, `high` float32[bucket, column], NaN where nothing was read in the bucket.
    """

    def __init__(self, capacity: int) -> None:
        self.width = 1
        self.columns: dict[Column, int] = {}
        self.rows: Ints = np.empty(0, dtype=np.int64)
        self.steps: Ints = np.empty(0, dtype=np.int64)
        self.times: Times = np.empty(0)
        self.low: Array = np.empty((0, 0), dtype=np.float32)
        self.high: Array = np.empty((0, 0), dtype=np.float32)
        self._capacity = capacity
        self._counts: Ints = np.empty(0, dtype=np.int64)
        """How many rows there were at the end of each bucket."""

    def add(self, columns: Iterable[Column], rows: Ints, steps: Ints, times: Times, low: Array, high: Array) -> None:
        """Further rows; low and high (the same for what was read once): float32[column, row].

        A column that is new was not read before.
        """
        if not len(rows):
            return
        places = np.array([self.columns.setdefault(column, len(self.columns)) for column in columns], dtype=np.intp)
        before = self._counts[-1] if len(self._counts) else 0
        self._counts = np.concatenate([self._counts, before + np.arange(1, len(rows) + 1)])
        self.rows, self.steps = np.concatenate([self.rows, rows]), np.concatenate([self.steps, steps])
        self.times = np.concatenate([self.times, times])
        self.low, self.high = (self._longer(*both, places) for both in ((self.low, low), (self.high, high)))
        self._merge()

    def span(self, first: int, last: int) -> slice:
        """The buckets that the steps from `first` to `last` lie in."""
        begin, end = np.searchsorted(self.steps, [first, last]).tolist()
        return slice(begin, end + 1)

    def _longer(self, array: Array, new: Array, places: np.ndarray[tuple[int], np.dtype[np.intp]]) -> Array:
        longer = np.full((len(array) + new.shape[1], len(self.columns)), np.nan, dtype=np.float32)
        longer[: len(array), : array.shape[1]] = array
        longer[len(array) :, places] = new.T
        return longer

    def _merge(self) -> None:
        while (self._counts[-1] - 1) // self.width >= self._capacity:
            self.width *= 2
        starts = np.flatnonzero(np.diff((self._counts - 1) // self.width, prepend=-1))
        ends = np.append(starts[1:], len(self._counts)) - 1
        self._counts, self.rows = self._counts[ends], self.rows[ends]
        self.steps, self.times = self.steps[ends], self.times[ends]
        self.low, self.high = np.fmin.reduceat(self.low, starts), np.fmax.reduceat(self.high, starts)
