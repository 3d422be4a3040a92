"""The rules in use, and stabmon, in the same terms: does it speak, of whatever, of runs that failed and of those that
did not? None of the rules says what is wrong.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from stabmon.bench.detection.figures import Graded, Share, checks, graded
from stabmon.bench.detection.judging import rules
from stabmon.bench.detection.outcomes import FAILURES, Class
from stabmon.bench.intervals import Rate

OURS = ("stabmon, warning", "stabmon, critical")


@dataclass(frozen=True, slots=True)
class Against:
    """One rule on one class of failure."""

    recall: Share
    leads: Sequence[int]

    def lead(self, share: float) -> float | None:
        return float(np.quantile(self.leads, share)) if self.leads else None


@dataclass(frozen=True, slots=True)
class Versus:
    """One rule."""

    recall: Share
    """Failed runs that it spoke of, from where the fault began."""
    precision: Share
    """Of the runs it spoke on, those that failed."""
    leads: Sequence[int]
    false: Rate
    """Incidents where nothing was wrong."""
    by_class: Mapping[Class, Against]

    def lead(self, share: float) -> float | None:
        return float(np.quantile(self.leads, share)) if self.leads else None


def versus(runs: Sequence[Graded]) -> dict[str, Versus]:
    """By rule, ours first; each on the runs that had what it looks at."""
    known = graded(runs)
    return {name: _rule(name, [run for run in known if has(run, name)]) for name in (*OURS, *rules())}


def _rule(name: str, runs: Sequence[Graded]) -> Versus:
    failed = [run for run in runs if run.outcome.label in FAILURES]
    first = {run.name: step for run in failed if (step := spoke_first(run, name)) is not None}
    critical = name == OURS[1]
    began = {run.name: [step for step in _began(run, name) if step < run.quiet_until(critical)] for run in runs}
    wrong = sum(bool(began[run.name]) for run in runs if run.outcome.label not in FAILURES)
    leads = {run.name: run.lead(first[run.name]) for run in failed if run.name in first}
    by_class = {}
    for label in FAILURES:
        mine = [run for run in failed if run.outcome.label == label]
        if mine:
            found = [leads[run.name] for run in mine if run.name in leads]
            by_class[label] = Against(Share(len(found), len(mine)), found)
    return Versus(
        Share(len(first), len(failed)),
        Share(len(first), len(first) + wrong),
        list(leads.values()),
        Rate(sum(len(steps) for steps in began.values()), checks(runs, critical)),
        by_class,
    )


def has(run: Graded, name: str) -> bool:
    """Whether the run has what the rule looks at."""
    return name in OURS or name in run.judged.rules


def _began(run: Graded, name: str) -> list[int]:
    """Steps at which its incidents began."""
    if name in OURS:
        found = (s.critical if name == OURS[1] else s.warned for s in run.judged.spoken)
        return [step for step in found if step is not None]
    return list(run.judged.rules[name].began)


def spoke_first(run: Graded, name: str) -> int | None:
    """The first step from the fault on at which a rule spoke."""
    spoke = _began(run, name) if name in OURS else run.judged.rules[name].spoke
    return min((step for step in spoke if step >= run.outcome.begins), default=None)
