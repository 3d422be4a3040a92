"""One cell of the table for every statistic: how far stabmon's readings are from the second computation."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from stabmon.bench.exact.naive import CLOCKS, NAIVE, Values
from stabmon.bench.exact.plan import Plan
from stabmon.bench.exact.tolerances import FLOOR, tolerance
from stabmon.bench.exact.twin import Step, Twin
from stabmon.bench.exact.watched import Watched
from stabmon.catalog import STATISTICS
from stabmon.records import Snapshot

SAME_TRAINING = "trained_parameters"
"""Not a statistic: whether both trainings ended at the same parameters, without which nothing could be compared."""


@dataclass(frozen=True, slots=True)
class Cell:
    """The worst of all sites and steps."""

    model: str
    loop: str
    precision: str
    statistic: str
    relative_error: float | None
    """|a - b| / max(|b|, floor), b being the second computation; 1 where one of the two has no value. None: neither."""
    tolerance: float | None
    note: str = ""
    """Why there is no value, or why this tolerance, or where it fails."""

    @property
    def agrees(self) -> bool:
        """Whether it is within its tolerance."""
        return self.relative_error is None or self.relative_error <= (self.tolerance or 0.0)


@dataclass(frozen=True, slots=True)
class Difference:
    """Of one value; the largest counts."""

    error: float
    where: str = ""


def cells(plan: Plan, twin: Twin, watched: Watched) -> Iterator[Cell]:
    """One for every statistic of the catalog, and one for the training itself."""
    yield _cell(plan, SAME_TRAINING, _parameters(twin, watched))
    for name in STATISTICS:
        if name in CLOCKS:
            yield _cell(plan, name, "a clock's reading: a second one would be of another time")
        elif name not in NAIVE:
            yield _cell(plan, name, Difference(1.0, "no independent computation is written for it"))
        else:
            yield _cell(plan, name, _worst(name, twin, watched))


def _cell(plan: Plan, statistic: str, found: Difference | str) -> Cell:
    of = (plan.family.name, plan.loop.name, plan.precision, statistic)
    if isinstance(found, str):
        return Cell(*of, None, None, found)
    allowed, reason = tolerance(statistic, plan)
    return Cell(*of, found.error, allowed, reason if found.error <= allowed else found.where)


def _parameters(twin: Twin, watched: Watched) -> Difference:
    """The largest difference of a parameter or buffer, in units of its own largest value."""
    found = Difference(0.0)
    for name, value in twin.trained.items():
        scale = float(value.double().abs().max())
        apart = float((watched.trained[name].double() - value.double()).abs().max())
        found = max(found, Difference(apart / max(scale, FLOOR), name), key=lambda d: d.error)
    return found


def _worst(name: str, twin: Twin, watched: Watched) -> Difference | str:
    """Over sites and steps; in words where it is not defined in any."""
    if len(watched.snapshots) != len(twin.steps):
        return Difference(1.0, f"{len(watched.snapshots)} of {len(twin.steps)} steps were told")
    why, worst = "", None
    for step, snapshot in zip(twin.steps, watched.snapshots, strict=True):
        expected = NAIVE[name](twin, step)
        if isinstance(expected, str):
            why, expected = expected, {}
        for difference in _differences(name, expected, snapshot, step):
            if worst is None or not difference.error <= worst.error:
                worst = difference
    if worst is not None and watched.failures and worst.error:
        return Difference(worst.error, "; ".join((worst.where, *watched.failures)))
    return worst or why or "not defined here"


def _differences(name: str, expected: Values, snapshot: Snapshot, step: Step) -> Iterator[Difference]:
    """Of each site at which either has a value."""
    told: Mapping[str, float] = {
        site.name: float(value) for site, value in zip(snapshot.layout.sites_of(name), snapshot[name], strict=True)
    }
    for where in dict.fromkeys((*expected, *told)):
        right, said = expected.get(where, math.nan), told.get(where, math.nan)
        if math.isnan(right) and math.isnan(said):
            continue
        place = f"step {step.number}{', ' if where else ''}{where}: {said:.6g} read, {right:.6g} due"
        yield Difference(_error(said, right), place)


def _error(said: float, right: float) -> float:
    if said == right:
        return 0.0
    error = abs(said - right) / max(abs(right), FLOOR)
    return error if math.isfinite(error) else 1.0
