"""Stabmon at no lower recall than a rule. A rule that speaks of a third of the failures is not to be compared with all
that stabmon says: of its alerts only the strong are taken. Cut at every strength they make a curve, and a rule is
beaten where one point of that curve is better than it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf

import numpy as np

from stabmon.bench.detection.figures import Graded, Share, graded
from stabmon.bench.detection.judging import rules
from stabmon.bench.detection.outcomes import FAILURES
from stabmon.bench.detection.versus import has, spoke_first, versus
from stabmon.records import SEVERITIES

Strength = tuple[int, float]
"""Of an alert as it was told: its severity, and among equals its score."""
WARNING, CRITICAL = SEVERITIES.index("warning"), SEVERITIES.index("critical")


@dataclass(frozen=True, slots=True)
class Beside:
    """One rule, and stabmon at no lower recall, or at the highest that it has: where it is soonest, of the points at
    which it is no less precise; if there is none, where it is as strict as that recall allows.
    """

    recall: Share
    precision: Share
    ours_recall: Share
    ours_precision: Share
    sooner: Sequence[int]
    """Steps by which stabmon spoke before the rule (negative: after it), of each failed run of which both did."""

    @property
    def median(self) -> float:
        """Of those steps; NaN of none."""
        return float(np.median(self.sooner)) if self.sooner else float("nan")

    @property
    def beaten(self) -> bool:
        """No lower recall and precision, and no later on the same runs; one of the latter two better."""
        apart = self.ours_precision.value - self.precision.value
        no_worse = self.ours_recall.value >= self.recall.value and apart >= 0 and self.median >= 0
        return no_worse and (apart > 0 or self.median > 0)


def beside(runs: Sequence[Graded]) -> Mapping[str, Beside]:
    """By rule; those that spoke of no failure are left out."""
    rows, known = versus(runs), graded(runs)
    return {
        name: _beside(name, [run for run in known if has(run, name)], rows[name].recall, rows[name].precision)
        for name in rules()
        if rows[name].recall.hits
    }


def _beside(name: str, runs: Sequence[Graded], recall: Share, precision: Share) -> Beside:
    theirs = {run.name: step for run in runs if (step := spoke_first(run, name)) is not None}
    curve = [_point(theirs, runs, recall, precision, line) for line in _lines(runs, recall.hits)]
    precise = [point for point in curve if point.ours_precision.value >= precision.value]
    return max(precise, key=_sooner_then_surer) if precise else curve[0]


def _sooner_then_surer(point: Beside) -> tuple[float, float]:
    return (point.median if point.sooner else -inf, point.ours_precision.value)


def _point(
    theirs: Mapping[str, int], runs: Sequence[Graded], recall: Share, precision: Share, line: Strength
) -> Beside:
    failed = [run for run in runs if run.outcome.label in FAILURES]
    spoke = {run.name: step for run in failed if (step := _first(run, line)) is not None}
    wrong = sum(_wrong(run, line) for run in runs if run.outcome.label not in FAILURES)
    sooner = [theirs[run] - ours for run, ours in spoke.items() if run in theirs]
    return Beside(recall, precision, Share(len(spoke), len(failed)), Share(len(spoke), len(spoke) + wrong), sooner)


def _lines(runs: Sequence[Graded], wanted: int) -> Sequence[Strength]:
    """Every strength from which on alerts speak of so many failures, the highest first."""
    told = [found for run in runs if run.outcome.label in FAILURES if (found := [s for _, s in _right(run)])]
    strongest = sorted((max(found) for found in told), reverse=True)
    if not strongest:
        return [(CRITICAL + 1, 0.0)]
    least = strongest[min(wanted, len(strongest)) - 1]
    return sorted({strength for found in told for strength in found if strength <= least}, reverse=True)


def _told(run: Graded) -> Iterator[tuple[int, Strength]]:
    """An info is no alarm."""
    told = (one for spoken in run.judged.spoken for one in spoken.told)
    return ((step, (rank, score)) for step, rank, score in told if rank >= WARNING)


def _right(run: Graded) -> Iterator[tuple[int, Strength]]:
    """From where the fault begins."""
    return ((step, strength) for step, strength in _told(run) if step >= run.outcome.begins)


def _first(run: Graded, line: Strength) -> int | None:
    return min((step for step, strength in _right(run) if strength >= line), default=None)


def _wrong(run: Graded, line: Strength) -> bool:
    told = ((step, strength) for step, strength in _told(run) if strength >= line)
    return any(step < run.quiet_until(strength[0] == CRITICAL) for step, strength in told)
