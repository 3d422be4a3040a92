"""Estimates against what they are of: of a single one little can be said, of their mean much.

An estimate is a mean of k squares of normal numbers whose variance is the true value. So estimate / truth is 1 in the
mean, with a standard deviation of sqrt(2 / k).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator

from stabmon.bench.exact.naive.output import COTANGENTS

SIGMAS = 4
"""Standard errors that the mean may be off."""
POWERS = {"block_output_change_msq": 1, "output_change_ratio": 2}
"""Statistics that are estimated in some steps, and to which power their ratio to the truth is a mean of squares."""


class Pool:
    """Ratios of estimates to truth by statistic. Those of one step share their random numbers and count as one."""

    def __init__(self) -> None:
        self._by_step: dict[str, list[float]] = defaultdict(list)

    def add(self, statistic: str, ratios: Iterable[float]) -> None:
        """Of all sites of one step."""
        powered = [ratio ** POWERS[statistic] for ratio in ratios]
        self._by_step[statistic].append(sum(powered) / len(powered))

    def extend(self, other: Pool) -> None:
        """With all that another holds."""
        for statistic, ratios in other._by_step.items():
            self._by_step[statistic] += ratios

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_step)

    def judged(self, statistic: str) -> tuple[float, float, str]:
        """(|mean ratio - 1|, what it may be, in words)."""
        ratios = self._by_step[statistic]
        mean = sum(ratios) / len(ratios)
        allowed = SIGMAS * math.sqrt(2 / COTANGENTS / len(ratios))
        return abs(mean - 1), allowed, f"estimates of {len(ratios)} steps: mean {mean:.2f} of the true square"
