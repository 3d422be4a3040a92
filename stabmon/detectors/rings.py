"""The last values of many streams at once, each with its own gaps."""

from __future__ import annotations

import numpy as np

from stabmon.detectors.arrays import Floats, Indices


class Rings:
    """float64[count, size], NaN where nothing is yet; `rows` are the streams that have a value now."""

    def __init__(self, count: int, size: int) -> None:
        self.values = np.full((count, size), np.nan)
        self.pushed = np.zeros(count, np.intp)
        """Values that each stream was ever given."""

    @property
    def held(self) -> Indices:
        return np.minimum(self.pushed, self.values.shape[1])

    def push(self, rows: Indices, values: Floats) -> Floats:
        """The values that fall out for it; NaN = none."""
        place = self.pushed[rows] % self.values.shape[1]
        old: Floats = self.values[rows, place]
        self.values[rows, place] = values
        self.pushed[rows] += 1
        return old

    def quantiles(self, rows: Indices, *shares: float) -> Floats:
        """float64[share, row]: the lowest value that at least that share of a stream's values does not exceed; NaN of
        none.
        """
        held = self.held[rows]
        order = np.sort(self.values[rows], axis=1)  # NaN come last
        places = np.maximum(np.ceil(np.outer(shares, held)).astype(np.intp) - 1, 0)
        return np.asarray(order[np.arange(len(rows)), places])

    def spread(self, rows: Indices) -> Floats:
        """A standard deviation that outliers do not move: width of the middle half / 1.349."""
        low, high = self.quantiles(rows, 0.25, 0.75)
        return np.asarray((high - low) / 1.349)
