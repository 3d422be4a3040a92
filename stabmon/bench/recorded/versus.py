"""The baselines and stabmon in the same terms: does it speak, of whatever, on runs that failed and on those that did
not?
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from stabmon.bench.intervals import Rate
from stabmon.bench.recorded.adjudication import Adjudication
from stabmon.bench.recorded.alarms import quiet
from stabmon.bench.recorded.baselines import baselines
from stabmon.bench.recorded.classes import ASKED, LOUD, QUIET
from stabmon.bench.recorded.judging import Judged
from stabmon.records import Severity

OURS: Mapping[str, Sequence[Severity]] = {"stabmon, warning": LOUD, "stabmon, critical": ("critical",)}
"""By name, the severities that are taken."""

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
    """What was found to be true is false of no rule."""
    good = quiet(runs)
    bad = [run for run in runs if run.recording.label in ASKED and ASKED[run.recording.label].called != QUIET]

    def spoke(name: str) -> Points:
        def points(run: Judged) -> Sequence[int]:
            severities = OURS.get(name)
            found = [c.point for c in run.calls if c.severity in severities] if severities else run.others[name]
            failed = ASKED[run.recording.label].called != QUIET
            return [p for p in found if failed or not adjudication.true_at(run.recording.id, p)]

        return points

    return {name: _rate(spoke(name), bad, good) for name in (*OURS, *baselines())}


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
