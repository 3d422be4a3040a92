"""A run of any length in bounded memory: rows are merged into buckets that keep the lowest and the highest value."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from stabmon.catalog import Array

Column = tuple[str, str]
"""Statistic and site."""
Ints = np.ndarray[tuple[int, ...], np.dtype[np.int64]]
Places = np.ndarray[tuple[int, ...], np.dtype[np.intp]]
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
        self._low: Array = np.empty((0, 0), dtype=np.float32)
        self._high: Array = np.empty((0, 0), dtype=np.float32)
        self._capacity = capacity
        self._known: tuple[list[Column], Places] = ([], np.empty(0, dtype=np.intp))
        self._counts: Ints = np.empty(0, dtype=np.int64)
        """How many rows there were at the end of each bucket."""

    @property
    def low(self) -> Array:
        """The lowest values."""
        return self._low[: len(self.rows)]

    @property
    def high(self) -> Array:
        """The highest ones."""
        return self._high[: len(self.rows)]

    def add(self, columns: Iterable[Column], rows: Ints, steps: Ints, times: Times, low: Array, high: Array) -> None:
        """Further rows; low and high (the same for what was read once): float32[column, row].

        A column that is new was not read before.
        """
        if not len(rows):
            return
        places = self._places_of(list(columns))
        before = int(self._counts[-1]) if len(self._counts) else 0
        counts = before + np.arange(1, len(rows) + 1)
        self._widen(int(counts[-1]))
        # Of the new rows' buckets the first may be the last one that is there.
        starts = np.flatnonzero(np.diff((counts - 1) // self.width, prepend=-1))
        open_ = len(self._counts) - (before % self.width > 0)
        ends = np.append(starts[1:], len(counts)) - 1
        self._counts, self.rows, self.steps, self.times = (
            np.concatenate([known[:open_], new[ends]])
            for known, new in ((self._counts, counts), (self.rows, rows), (self.steps, steps), (self.times, times))
        )
        self._grow(len(self._counts))
        for known, new, worse in ((self._low, low, np.fmin), (self._high, high, np.fmax)):
            part = known[open_ : len(self._counts)]
            part[:, places] = worse(part[:, places], worse.reduceat(new, starts, axis=1).T)

    def _places_of(self, columns: list[Column]) -> Places:
        """Mostly those of the last time."""
        if columns != self._known[0]:
            places = [self.columns.setdefault(column, len(self.columns)) for column in columns]
            self._known = columns, np.array(places, dtype=np.intp)
        return self._known[1]

    def span(self, first: int, last: int) -> slice:
        """The buckets that the steps from `first` to `last` lie in."""
        begin, end = np.searchsorted(self.steps, [first, last]).tolist()
        return slice(begin, end + 1)

    def _grow(self, buckets: int) -> None:
        """Room for so many buckets and for every column, twice what is needed, so that it is seldom done."""
        known = self._low.shape
        if buckets > known[0] or len(self.columns) > known[1]:
            room = min(self._capacity, 2 * buckets) if buckets > known[0] else known[0], len(self.columns)
            self._low, self._high = (_roomy(values, room) for values in (self._low, self._high))

    def _widen(self, count: int) -> None:
        """Until so many rows fit; neighbours become one, which is exact as each but the last is full."""
        while (count - 1) // self.width >= self._capacity:
            self.width *= 2
            starts = np.arange(0, len(self._counts), 2)
            if not len(starts):
                continue
            ends = np.minimum(starts + 1, len(self._counts) - 1)
            self._counts, self.rows = self._counts[ends], self.rows[ends]
            self.steps, self.times = self.steps[ends], self.times[ends]
            for known, worse in ((self._low, np.fmin), (self._high, np.fmax)):
                pairs = (ends[-1] + 1) // 2  # and the last one, if it has no neighbour
                merged = worse(known[: 2 * pairs : 2], known[1 : 2 * pairs : 2])
                known[pairs : len(starts)] = known[ends[-1] : ends[-1] + len(starts) - pairs]
                known[:pairs] = merged
                known[len(starts) :] = np.nan


def _roomy(values: Array, room: tuple[int, int]) -> Array:
    wider = np.full(room, np.nan, dtype=np.float32)
    wider[: values.shape[0], : values.shape[1]] = values
    return wider
