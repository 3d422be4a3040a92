"""The second computation of every statistic: written out plainly, in float64, from what the twin kept.

One file per subject, one function per statistic, found by the statistic's name. Each takes the twin and one of its
steps and gives the values by site, or says in words why there is none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from stabmon.bench.exact.naive import baselines, norms, output, training, weights
from stabmon.bench.exact.twin import Step, Twin

Values = Mapping[str, float]
"""Site -> value; NaN: not defined there."""
Naive = Callable[[Twin, Step], Values | str]

NAIVE: Mapping[str, Naive] = {
    **training.NAIVE,
    **baselines.NAIVE,
    **norms.NAIVE,
    **weights.NAIVE,
    **output.NAIVE,
}

CLOCKS = ("step_seconds", "monitor_seconds")
"""Readings of a clock: a second reading would be of another time."""
