"""One cell of the table for every statistic: how far stabmon's readings are from the second computation."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from stabmon.bench.exact.estimates import POWERS, Pool
from stabmon.bench.exact.naive import NAIVE, WITHOUT, Values
from stabmon.bench.exact.naive.output import estimated
from stabmon.bench.exact.plan import Plan
from stabmon.bench.exact.tolerances import FLOOR, TOLERANCE, floor
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
    """Why there is no value, or how estimates are judged, or where it fails."""

    @property
    def agrees(self) -> bool:
        """Whether it is within its tolerance."""
        return self.relative_error is None or self.relative_error <= (self.tolerance or 0.0)


@dataclass(frozen=True, slots=True)
class Difference:
    """Of one value; the largest counts."""

    error: float
    where: str = ""
    ratio: float = math.nan
    """What was read / what was due."""


def cells(plan: Plan, twin: Twin, watched: Watched, pool: Pool) -> Iterator[Cell]:
    """One for every statistic of the catalog, and one for the training itself. Estimates also go into the pool."""
    training = (plan.family.name, plan.loop.name, plan.precision)
    same = _parameters(twin, watched)
    yield _cell(training, SAME_TRAINING, same)
    for name in STATISTICS:
        if name in WITHOUT:
            yield Cell(*training, name, None, None, WITHOUT[name])
        elif name not in NAIVE:
            yield _cell(training, name, Difference(1.0, "no independent computation is written for it"))
        else:
            yield _compared(training, name, twin, watched, pool)


def broken(plan: Plan, error: Exception) -> Cell:
    """What stands for a training that did not come to its end."""
    training = (plan.family.name, plan.loop.name, plan.precision)
    return _cell(training, SAME_TRAINING, Difference(1.0, f"{type(error).__name__}: {error}"))


def pooled(pool: Pool) -> Iterator[Cell]:
    """The estimates of all trainings together."""
    for statistic in pool.statistics:
        yield Cell("all", "all", "all", statistic, *pool.judged(statistic))


def _cell(training: tuple[str, str, str], statistic: str, found: Difference) -> Cell:
    note = found.where if found.error > TOLERANCE else ""
    return Cell(*training, statistic, found.error, TOLERANCE, note)


def _parameters(twin: Twin, watched: Watched) -> Difference:
    """The largest difference of a parameter or buffer, in units of its own largest value."""
    found = Difference(0.0)
    for name, value in twin.trained.items():
        scale = float(value.double().abs().max())
        apart = float((watched.trained[name].double() - value.double()).abs().max())
        found = max(found, Difference(apart / max(scale, FLOOR), name), key=lambda d: d.error)
    return found


def _compared(training: tuple[str, str, str], name: str, twin: Twin, watched: Watched, pool: Pool) -> Cell:
    """The worst over sites and steps; of estimates the mean."""
    why, worst, guesses = "not defined here", Difference(-1.0), Pool()
    for step, snapshot in zip(twin.steps, watched.snapshots, strict=True):
        expected = NAIVE[name](twin, step)
        if isinstance(expected, str):
            why, expected = expected, {}
        found = list(_differences(name, expected, snapshot, step, twin.plan.loop.inside))
        if found and name in POWERS and estimated(step) and all(d.ratio == d.ratio for d in found):
            guesses.add(name, (twin.plan.family.name, step.number), [d.ratio for d in found])
        else:
            worst = max([worst, *found], key=lambda d: d.error)
    pool.extend(guesses)
    if worst.error > TOLERANCE:
        return _cell(training, name, Difference(worst.error, "; ".join((worst.where, *watched.failures))))
    if name in guesses.statistics:
        return Cell(*training, name, *guesses.judged(name))
    return Cell(*training, name, None, None, why) if worst.error < 0 else _cell(training, name, worst)


def _differences(name: str, expected: Values, snapshot: Snapshot, step: Step, inside: str) -> Iterator[Difference]:
    """Of each site at which either has a value."""
    told: Mapping[str, float] = {
        site.name.removeprefix(f"{inside}."): float(value)
        for site, value in zip(snapshot.layout.sites_of(name), snapshot[name], strict=True)
    }
    for where in dict.fromkeys((*expected, *told)):
        read, due = told.get(where, math.nan), expected.get(where, math.nan)
        error = relative_error(read, due, floor(name))
        if error is not None:
            place = f"step {step.number}{', ' if where else ''}{where}: {read:.6g} read, {due:.6g} due"
            yield Difference(error, place, read / due if due else math.nan)


def relative_error(read: float, due: float, least: float) -> float | None:
    """|read - due| / max(|due|, least); 1 where one of them has no value, or is not finite alone; None: neither has."""
    if math.isnan(read) and math.isnan(due):
        return None
    if read == due:
        return 0.0
    error = abs(read - due) / max(abs(due), least)
    return error if math.isfinite(error) else 1.0
