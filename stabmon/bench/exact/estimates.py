"""Estimates against what they are of: of a single one little can be said, of their mean much.

An estimate is a mean of k squares of normal numbers whose variance is the true value. So estimate / truth is 1 in the
mean, with a standard deviation of sqrt(2 / k).
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Sequence

from stabmon.bench.exact.naive.output import COTANGENTS

SIGMAS = 4
"""Standard errors that the mean may be off."""
POWERS = {"block_output_change_msq": 1, "output_change_ratio": 2}
"""Statistics that are estimated in some steps, and to which power their ratio to the truth is a mean of squares."""


class Pool:
    """Ratios of estimates to truth, by statistic and draw: what shares its random numbers counts as one."""

    def __init__(self) -> None:
        self._ratios: dict[str, dict[Hashable, list[float]]] = {}

    def add(self, statistic: str, draw: Hashable, ratios: Iterable[float]) -> None:
        """Of all sites of one step."""
        of_draw = self._ratios.setdefault(statistic, {}).setdefault(draw, [])
        of_draw += [ratio ** POWERS[statistic] for ratio in ratios]

    def extend(self, other: Pool) -> None:
        """With all that another holds."""
        for statistic, draws in other._ratios.items():
            for draw, powered in draws.items():
                self._ratios.setdefault(statistic, {}).setdefault(draw, []).extend(powered)

    @property
    def statistics(self) -> Sequence[str]:
        """Those of which there are estimates."""
        return list(self._ratios)

    def judged(self, statistic: str) -> tuple[float, float, str]:
        """(|mean ratio - 1|, what it may be, in words)."""
        means = [sum(ratios) / len(ratios) for ratios in self._ratios[statistic].values()]
        mean = sum(means) / len(means)
        allowed = SIGMAS * math.sqrt(2 / COTANGENTS / len(means))
        return abs(mean - 1), allowed, f"estimates of {len(means)} draws: mean {mean:.2f} of the true square"
