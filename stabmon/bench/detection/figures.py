"""From graded runs to figures. All leads are steps from the first alarm to the onset; negative: after it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from stabmon.bench.detection.judging import Judged, Spoken
from stabmon.bench.detection.outcomes import FAILURES, HARMLESS, QUIET, Class, Outcome
from stabmon.bench.intervals import Rate, binomial

NOTHING = "nothing"
"""What a run is called of which no alarm was raised."""
IN_TIME: Mapping[str, int] = {
    "STALL": 30,
    "BLOW-UP": 0,
    "ATTENTION": 0,
    "SPIKE": 10,
    "DATA": 10,
    "IMPLEMENTATION": 100,
}
"""Steps after the onset by which a class is to be warned of: a stall within 30, growth before the loss rises, what
comes in one step at the first reading (every 10), and a mistake in the code before a person would look.
"""
CRITICAL_IN_TIME: Mapping[str, int] = {"STALL": 80}
DAY = 86_400
"""Steps of a run-day at one step a second."""


@dataclass(frozen=True, slots=True)
class Graded:
    """A run with its label and with what was said of it."""

    outcome: Outcome
    judged: Judged

    @property
    def name(self) -> str:
        return self.judged.name

    def alarms(self, critical: bool = False) -> list[tuple[int, Spoken]]:
        """(step, incident) of warnings, or of criticals, from where an alarm may be right; the first first."""
        found = [((s.critical if critical else s.warned), s) for s in self.judged.spoken]
        return sorted(
            ((step, s) for step, s in found if step is not None and step >= self.outcome.begins), key=lambda one: one[0]
        )

    def right(self, critical: bool = False) -> int | None:
        """Step of the first alarm that names the run's class."""
        return next((step for step, s in self.alarms(critical) if self.outcome.label in s.classes), None)

    def called(self, critical: bool = False) -> str:
        """What the first warning (or critical) said; of several classes it tells of, the run's own counts as said."""
        first = next((s for _, s in self.alarms(critical)), None)
        if first is None:
            return NOTHING
        return self.outcome.label if self.outcome.label in first.classes else first.classes[0]

    def true(self) -> bool:
        """Whether the first warning said what the loss shows, if not its cause."""
        return self.called() in (self.outcome.label, *self.outcome.also)

    def quiet_until(self, critical: bool) -> float:
        """The first step on which an alarm is not false any more."""
        excused = self.outcome.label in FAILURES or (self.outcome.label == HARMLESS and not critical)
        return self.outcome.begins if excused else float("inf")

    def false_steps(self, critical: bool) -> list[int]:
        """Where incidents came to a warning, or to a critical, and should not have."""
        steps = ((s.critical if critical else s.warned) for s in self.judged.spoken)
        return [step for step in steps if step is not None and step < self.quiet_until(critical)]

    def lead(self, step: int) -> int:
        assert self.outcome.onset is not None, "asked of failures"
        return self.outcome.onset - step


@dataclass(frozen=True, slots=True)
class Share:
    """Of how many how many."""

    hits: int
    of: int

    @property
    def value(self) -> float:
        return self.hits / self.of if self.of else float("nan")

    @property
    def interval(self) -> tuple[float, float]:
        return binomial(self.hits, self.of)


@dataclass(frozen=True, slots=True)
class Figures:
    """Of one class. Of a failure, right is a warning or worse that names it; of the others, nothing critical."""

    runs: int
    recall: Share
    precision: Share
    """Of a failure: of the runs that were called so (without those whose fault did no harm), the share that were. Of
    the others: of the runs without a critical alarm, the share that needed none."""
    critical: Share
    """Runs with a right critical alarm; of classes where nothing is wrong: with a false one."""
    critical_precision: Share
    """As precision, of criticals."""
    in_time: Share
    critical_in_time: Share
    named: Share
    """Of the runs with any warning, those whose first names the class."""
    leads: Sequence[int]

    def lead(self, share: float) -> float | None:
        """That quantile; None: nothing is wrong in this class, or nothing was said."""
        return float(np.quantile(self.leads, share)) if self.leads else None


def graded(runs: Sequence[Graded]) -> list[Graded]:
    """Those with a class."""
    return [run for run in runs if run.outcome.label is not None]


def figures(runs: Sequence[Graded]) -> dict[Class, Figures]:
    """By class, failures first; those that no run has are left out."""
    known = graded(runs)
    present = {run.outcome.label for run in known}
    return {
        label: _failure(known, label) if label in FAILURES else _quiet(known, label)
        for label in (*FAILURES, *QUIET, HARMLESS)
        if label in present
    }


def _failure(runs: Sequence[Graded], label: Class) -> Figures:
    mine = [run for run in runs if run.outcome.label == label]
    warned = [(step, run) for run in mine if (step := run.right()) is not None]
    leads = [run.lead(step) for step, run in warned]
    critical = [run.lead(step) for run in mine if (step := run.right(critical=True)) is not None]
    called = [run for run in runs if run.called() == label and run.outcome.label != HARMLESS]
    paged = [run for run in runs if run.called(critical=True) == label]
    late, critical_late = IN_TIME[label], CRITICAL_IN_TIME.get(label, IN_TIME[label])
    heard = [run for run in mine if run.alarms()]
    return Figures(
        runs=len(mine),
        recall=Share(len(warned), len(mine)),
        precision=Share(sum(run.outcome.label == label for run in called), len(called)),
        critical=Share(len(critical), len(mine)),
        critical_precision=Share(sum(run.outcome.label == label for run in paged), len(paged)),
        in_time=Share(sum(lead >= -late for lead in leads), len(mine)),
        critical_in_time=Share(sum(lead >= -critical_late for lead in critical), len(mine)),
        named=Share(sum(run.called() == label for run in heard), len(heard)),
        leads=leads,
    )


def _quiet(runs: Sequence[Graded], label: Class) -> Figures:
    mine = [run for run in runs if run.outcome.label == label]
    bad = sum(bool(run.alarms(critical=True)) for run in mine)
    calm = [run for run in runs if not run.alarms(critical=True)]
    needed_none = sum(run.outcome.label not in FAILURES for run in calm)
    silent = sum(run.called() == NOTHING for run in mine)
    return Figures(
        runs=len(mine),
        recall=Share(len(mine) - bad, len(mine)),
        precision=Share(needed_none, len(calm)),
        critical=Share(bad, len(mine)),
        critical_precision=Share(0, 0),
        in_time=Share(0, 0),
        critical_in_time=Share(0, 0),
        named=Share(silent, len(mine)),
        leads=[],
    )


def named(runs: Sequence[Graded]) -> tuple[Share, Share]:
    """Of the failures with any warning: those whose first names their class, and those where it is true of what the
    loss did, if not of the cause.
    """
    heard = [run for run in graded(runs) if run.outcome.label in FAILURES and run.alarms()]
    right = sum(run.called() == run.outcome.label for run in heard)
    return Share(right, len(heard)), Share(sum(run.true() for run in heard), len(heard))


def confusion(runs: Sequence[Graded]) -> dict[str, Counter[str]]:
    """How often each class was called what."""
    found: dict[str, Counter[str]] = {}
    for run in graded(runs):
        found.setdefault(str(run.outcome.label), Counter())[run.called()] += 1
    return found


@dataclass(frozen=True, slots=True)
class FalseAlarms:
    """A check is one judged step of one run on which nothing is wrong: every step of quiet runs, and those before the
    fault of the others. After a fault that did no harm a critical is false, and a warning is neither right nor false.
    """

    critical: Rate
    warning: Rate
    """Incidents that came to a warning, or worse."""
    runs: Share
    """Runs without a failure that got a critical alarm."""

    @staticmethod
    def per_day(rate: Rate) -> float:
        """Of one run at a step a second."""
        return DAY * rate.events / rate.points if rate.points else float("nan")


def false_alarms(runs: Sequence[Graded]) -> FalseAlarms:
    known = graded(runs)
    unfailed = [run for run in known if run.outcome.label not in FAILURES]
    hit = sum(any(s.critical is not None for s in run.judged.spoken) for run in unfailed)
    critical = Rate(sum(len(run.false_steps(critical=True)) for run in known), checks(known, critical=True))
    warning = Rate(sum(len(run.false_steps(critical=False)) for run in known), checks(known, critical=False))
    return FalseAlarms(critical, warning, Share(hit, len(unfailed)))


def checks(runs: Sequence[Graded], critical: bool) -> int:
    """Steps on which an alarm would be false."""
    return sum(int((run.judged.curve.steps < run.quiet_until(critical)).sum()) for run in runs)
