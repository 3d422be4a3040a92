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
    told = _Told(
        {run.name: _rising(run) for run in runs if run.outcome.label in FAILURES},
        [_worst(run) for run in runs if run.outcome.label not in FAILURES],
    )
    curve = [_point(theirs, told, recall, precision, line) for line in _lines(told, recall.hits)]
    precise = [point for point in curve if point.ours_precision.value >= precision.value]
    return max(precise, key=_sooner_then_surer) if precise else curve[0]


def _sooner_then_surer(point: Beside) -> tuple[float, float]:
    return (point.median if point.sooner else -inf, point.ours_precision.value)


Rising = Sequence[tuple[int, Strength]]


@dataclass(frozen=True, slots=True)
class _Told:
    """All that decides at which strength which runs are spoken of, and when."""

    failed: Mapping[str, Rising]
    wrong: Sequence[Strength]
    """The strongest false alert of each run that did not fail."""


def _point(theirs: Mapping[str, int], told: _Told, recall: Share, precision: Share, line: Strength) -> Beside:
    spoke = {run: step for run, rising in told.failed.items() if (step := _first(rising, line)) is not None}
    wrong = sum(strength >= line for strength in told.wrong)
    sooner = [theirs[run] - ours for run, ours in spoke.items() if run in theirs]
    return Beside(recall, precision, Share(len(spoke), len(told.failed)), Share(len(spoke), len(spoke) + wrong), sooner)


def _lines(told: _Told, wanted: int) -> Sequence[Strength]:
    """Every strength from which on alerts speak of so many failures, the highest first. Between two of these the same
    is spoken of as soon, and more that is wrong.
    """
    strongest = sorted((rising[-1][1] for rising in told.failed.values() if rising), reverse=True)
    if not strongest:
        return [(CRITICAL + 1, 0.0)]
    least = strongest[min(wanted, len(strongest)) - 1]
    strengths = {strength for rising in told.failed.values() for _, strength in rising}
    return sorted((strength for strength in strengths if strength <= least), reverse=True)


def _first(rising: Rising, line: Strength) -> int | None:
    return next((step for step, strength in rising if strength >= line), None)


def _rising(run: Graded) -> Rising:
    """From where the fault begins, each alert that is stronger than all before it."""
    found: list[tuple[int, Strength]] = []
    for step, strength in sorted(one for one in _alerts(run) if one[0] >= run.outcome.begins):
        if not found or strength > found[-1][1]:
            found.append((step, strength))
    return found


def _worst(run: Graded) -> Strength:
    """(-1, 0) where nothing false was told."""
    false = (strength for step, strength in _alerts(run) if step < run.quiet_until(strength[0] == CRITICAL))
    return max(false, default=(-1, 0.0))


def _alerts(run: Graded) -> Iterator[tuple[int, Strength]]:
    """An info is no alarm."""
    told = (one for spoken in run.judged.spoken for one in spoken.told)
    return ((step, (rank, score)) for step, rank, score in told if rank >= WARNING)
