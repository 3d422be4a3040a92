"""A run's class: by what its loss did, not by what it was configured to do. Injected data faults alone keep their name,
and what an injected fault did is measured against the same run without it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from stabmon.bench.detection.curves import Curve, moving
from stabmon.bench.detection.faults import OddBatch
from stabmon.bench.detection.scenarios import Scenario, run_name
from stabmon.bench.detection.shown import BAND, GAP, NEAR, RISE, Shown, shown

Class = Literal[
    "STALL",
    "DELAYED",
    "HEALTHY",
    "FLOOR",
    "ABRUPT",
    "BLOW-UP",
    "ATTENTION",
    "SPIKE",
    "DATA",
    "IMPLEMENTATION",
    "SCHEDULE",
    "HARMLESS",
]
FAILURES: tuple[Class, ...] = ("STALL", "BLOW-UP", "ATTENTION", "SPIKE", "DATA", "IMPLEMENTATION")
"""To be told of."""
QUIET: tuple[Class, ...] = ("DELAYED", "HEALTHY", "FLOOR", "ABRUPT", "SCHEDULE")
"""Nothing is wrong; every alarm is false."""
HARMLESS: Class = "HARMLESS"
"""A fault was injected and the loss does not show it, or it was an odd batch that the run got over: a warning is right
enough, a critical is false."""


@dataclass(frozen=True, slots=True)
class Known:
    """One run before any detector."""

    scenario: Scenario
    seed: int
    curve: Curve

    @property
    def name(self) -> str:
        return run_name(self.scenario.name, self.seed)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run is graded as."""

    label: Class | None
    """None: neither one thing nor another, so it is not graded."""
    why: str
    """The numbers that decided."""
    begins: int = 1
    """First step at which an alarm may be right: the fault's."""
    onset: int | None = None
    """Step from which leads are counted; None where nothing is wrong."""
    also: tuple[Class, ...] = ()
    """Other failures whose definition the loss meets: saying so is true, but not the cause."""


def outcomes(runs: Sequence[Known]) -> dict[str, Outcome]:
    """By run. Runs are judged beside each other: a control tells what a fault did, and a run that learns from the same
    data that there was something to learn.
    """
    seen = {run.name: shown(run.curve) for run in runs}
    learnable = {run.scenario.data for run in runs if seen[run.name].left < -NEAR - BAND}
    left = {run.scenario.name for run in runs if seen[run.name].what in ("DELAYED", "HEALTHY")}
    by_name = {run.name: run for run in runs}
    found = {}
    for run in runs:
        control = by_name.get(run_name(run.scenario.control, run.seed))
        found[run.name] = _Labeller(run, control, learnable, left).of(seen[run.name])
    return found


@dataclass(frozen=True, slots=True)
class _Labeller:
    run: Known
    control: Known | None
    learnable: set[str]
    """Data that some run learnt more from than frequencies."""
    left: set[str]
    """Scenarios of which some run left the unigram loss."""

    def of(self, seen: Shown) -> Outcome:
        begins = self.run.scenario.fault_at or 1
        also = _failures(seen)
        match self.run.scenario.family:
            case "data":
                return Outcome("DATA", "an injected fault of the data", begins, begins, also)
            case "attention":
                return self._attention(seen, begins, also)
            case "implementation":
                return self._implementation(seen, begins, also)
        return self._plain(seen, begins)

    def _attention(self, seen: Shown, begins: int, also: tuple[Class, ...]) -> Outcome:
        """The blow-up's definition, or an end that is .3 above the control's; from whichever began first."""
        worse = self._worse()
        began = [step for step in (seen.onset if seen.what == "BLOW-UP" else None, worse.since) if step is not None]
        if seen.what == "BLOW-UP" or worse.by > RISE + BAND:
            return Outcome("ATTENTION", seen.why or worse.why, begins, min(began), also)
        if abs(worse.by - RISE) <= BAND:
            return Outcome(None, worse.why, begins)
        if self.control is None and seen.what in ("HEALTHY", "DELAYED"):
            return self._no_control(begins)
        return self._plain(seen, begins)

    def _implementation(self, seen: Shown, begins: int, also: tuple[Class, ...]) -> Outcome:
        """Wrong from its first step: it never learns, ends .3 above the control, or as far below it (a leak)."""
        worse = self._worse()
        if also and seen.what != "SPIKE":
            return Outcome("IMPLEMENTATION", seen.why, begins, begins, also)
        if self.control is None:
            return self._no_control(begins)
        if abs(abs(worse.by) - RISE) <= BAND:
            return Outcome(None, worse.why, begins)
        if abs(worse.by) > RISE:
            return Outcome("IMPLEMENTATION", worse.why, begins, begins, also)
        return Outcome(HARMLESS, worse.why, begins)

    def _plain(self, seen: Shown, begins: int) -> Outcome:
        family, injected = self.run.scenario.family, self.run.scenario.fault is not None
        if seen.what == "UNCLEAR":
            return Outcome(None, seen.why, begins)
        if seen.what == "PLATEAU":
            return self._unexplained_plateau(seen, begins)
        if seen.what == "SPIKE" and isinstance(self.run.scenario.fault, OddBatch):
            return Outcome(HARMLESS, f"an odd batch, {seen.why}", begins)
        if seen.what in ("STALL", "BLOW-UP", "SPIKE"):
            struck = seen.what == "SPIKE" and injected and (seen.onset or 0) >= begins
            return Outcome(seen.what, seen.why, begins, begins if struck else seen.onset, _failures(seen)[1:])
        if family == "schedule":
            return Outcome("SCHEDULE", seen.why)
        if family == "abrupt" and seen.what == "DELAYED" and seen.gap <= GAP:
            return Outcome("ABRUPT", seen.why)
        if injected:
            worse = self._worse()
            unclear = worse.by > RISE - BAND
            return Outcome(None if unclear else HARMLESS, worse.why if unclear else seen.why, begins)
        return Outcome(seen.what, seen.why)

    def _unexplained_plateau(self, seen: Shown, begins: int) -> Outcome:
        """At the unigram loss, where a bigram does no better."""
        names = {self.run.scenario.name, self.run.scenario.control}
        if self.run.scenario.family == "abrupt":
            if names & self.left:
                return Outcome("ABRUPT", f"{seen.why}; another seed, or a longer run, left it")
            return Outcome(None, f"{seen.why}; no run shows that it is left in time", begins)
        if self.run.scenario.data in self.learnable:
            return Outcome("STALL", f"{seen.why}; others learn from this data", begins, seen.onset)
        return Outcome("FLOOR", seen.why)

    def _no_control(self, begins: int) -> Outcome:
        return Outcome(None, f"its control {self.run.scenario.control or '(none)'} is not there", begins)

    def _worse(self) -> _Worse:
        return _Worse.of(self.run.curve, self.control.curve) if self.control else _Worse(0.0, None, "no control")


@dataclass(frozen=True, slots=True)
class _Worse:
    """A run against its control, at the last step that both have."""

    by: float
    """Nats; negative: better. Inf: the run's loss is not finite."""
    since: int | None
    """First step from which it stays more than .3 above the control."""
    why: str

    @classmethod
    def of(cls, curve: Curve, control: Curve) -> _Worse:
        finite = len(curve.finite.steps)
        if finite < len(curve.steps):
            return cls(float("inf"), int(curve.steps[finite]), "the loss is not finite")
        count = min(finite, len(control.finite.steps))
        apart = moving(curve.loss[:count]) - moving(control.loss[:count])
        below = np.flatnonzero(apart <= RISE)
        first = below[-1] + 1 if below.size else 0
        since = int(curve.steps[first]) if first < count else None
        told = f"ends {abs(apart[-1]):.2f} {'above' if apart[-1] > 0 else 'below'} its control"
        return cls(float(apart[-1]), since, told)


def _failures(seen: Shown) -> tuple[Class, ...]:
    """What went wrong by the loss alone, the gravest first."""
    found: list[Class] = []
    if seen.what in ("STALL", "BLOW-UP", "SPIKE"):
        found.append(seen.what)
    if seen.stalled:
        found.append("STALL")
    if seen.spiked is not None and seen.what != "SPIKE":
        found.append("SPIKE")
    return tuple(found)
