"""The second computation of every statistic: written out plainly, in float64, from what the twin kept.

One file per subject, one function per statistic, found by the statistic's name. Each takes the twin and one of its
steps and gives the values by site, or says in words why there is none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from stabmon.bench.exact.naive import (
    activations,
    attention,
    baselines,
    branches,
    class_means,
    logits,
    norms,
    optimizer,
    output,
    training,
    units,
    weights,
)
from stabmon.bench.exact.twin import Step, Twin
from stabmon.catalog import ranks

Values = Mapping[str, float]
"""Site -> value; NaN: not defined there."""
Naive = Callable[[Twin, Step], Values | str]

NAIVE: Mapping[str, Naive] = {
    **training.NAIVE,
    **baselines.NAIVE,
    **class_means.NAIVE,
    **norms.NAIVE,
    **weights.NAIVE,
    **optimizer.NAIVE,
    **activations.NAIVE,
    **units.NAIVE,
    **branches.NAIVE,
    **attention.NAIVE,
    **logits.NAIVE,
    **output.NAIVE,
}

_CLOCK = "a clock's reading: a second one would be of another time"
WITHOUT: Mapping[str, str] = {
    "step_seconds": _CLOCK,
    "monitor_seconds": _CLOCK,
    **dict.fromkeys((row.name for row in ranks.TABLE), "between several processes; here there is one"),
    "activation_max_key": "holds activation_max and its channel, which are compared",
}
"""Statistics that have no second computation, and why."""
