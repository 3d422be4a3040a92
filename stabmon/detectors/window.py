"""The last values, kept sorted: medians, quantiles and ranks at the cost of a bisection."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import deque
from math import ceil


class Window:
    """The last `size` values that were pushed."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._order: deque[float] = deque()
        self._sorted: list[float] = []

    def __len__(self) -> int:
        return len(self._sorted)

    @property
    def full(self) -> bool:
        return len(self._sorted) == self.size

    def push(self, value: float) -> None:
        ordered = self._sorted
        if len(ordered) == self.size:
            del ordered[bisect_left(ordered, self._order.popleft())]
        self._order.append(value)
        insort(ordered, value)

    @property
    def median(self) -> float:
        ordered, count = self._sorted, len(self._sorted)
        middle = count // 2
        return ordered[middle] if count % 2 else (ordered[middle - 1] + ordered[middle]) / 2

    def quantile(self, share: float) -> float:
        """The lowest value that at least that share of the values does not exceed."""
        return self._sorted[max(ceil(share * len(self._sorted)) - 1, 0)]

    def above(self, value: float) -> tuple[int, int]:
        """How many are greater than `value`, and how many equal to it."""
        first, last = bisect_left(self._sorted, value), bisect_right(self._sorted, value)
        return len(self._sorted) - last, last - first

    @property
    def spread(self) -> float:
        """A standard deviation that outliers do not move: width of the middle half / 1.349, exact for a Gaussian."""
        return (self.quantile(0.75) - self.quantile(0.25)) / 1.349
