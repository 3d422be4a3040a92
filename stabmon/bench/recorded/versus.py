"""The baselines and stabmon in the same terms: does it speak, of whatever, on runs that failed and on those that did
not?
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from stabmon.bench.recorded.adjudication import Adjudication
from stabmon.bench.recorded.alarms import Rate, quiet
from stabmon.bench.recorded.baselines import baselines
from stabmon.bench.recorded.classes import ASKED, QUIET
from stabmon.bench.recorded.judging import Judged

Points = Callable[[Judged], Sequence[int]]
"""At which points a rule spoke."""


@dataclass(frozen=True, slots=True)
class Versus:
    """One rule."""

    runs: int
    """That failed."""
    recall: float
    precision: float
    """Of the runs it spoke on, the share that failed."""
    lead_median: float | None
    """Points to the onset, of the runs that have one; negative: after it."""
    false: Rate
    """Incidents on the runs that should be quiet."""


def versus(runs: Sequence[Judged], adjudication: Adjudication) -> dict[str, Versus]:
    def ours(run: Judged) -> Sequence[int]:
        return [c.point for c in run.calls if c.severity == "critical" and not _found_true(run, c.point)]

    def _found_true(run: Judged, point: int) -> bool:
        near = [c for c in run.calls if c.point == point]
        return run in good and any(adjudication.true(run.recording.id, c) for c in near)

    good = quiet(runs)
    rules: dict[str, Points] = {"stabmon, critical": ours}
    for name in baselines():
        rules[name] = lambda run, name=name: run.others[name]  # type: ignore[misc]
    bad = [run for run in runs if run.recording.label in ASKED and ASKED[run.recording.label].called != QUIET]
    return {name: _rate(points, bad, good) for name, points in rules.items()}


def _rate(points: Points, bad: Sequence[Judged], good: Sequence[Judged]) -> Versus:
    caught = [run for run in bad if points(run)]
    wrong = [run for run in good if points(run)]
    spoke = len(caught) + len(wrong)
    leads = [_onset(run) - points(run)[0] for run in caught if run.recording.onset is not None]
    return Versus(
        len(bad),
        len(caught) / len(bad) if bad else float("nan"),
        len(caught) / spoke if spoke else float("nan"),
        float(np.median(leads)) if leads else None,
        Rate(sum(len(points(run)) for run in good), sum(len(run.losses) for run in good)),
    )


def _onset(run: Judged) -> int:
    assert run.recording.onset is not None, "asked for runs that have one"
    return int(np.searchsorted(run.steps, run.recording.onset))
