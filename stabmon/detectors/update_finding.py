"""What the alert of updates that are too large says."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import isfinite
from typing import Literal

from stabmon.detectors import words
from stabmon.detectors.thresholds import updates as thresholds
from stabmon.detectors.update_readings import Reading, Updates
from stabmon.records import Finding, Severity

Verdict = Literal["overshot", "shock", "overshoots", "edge", "first"]
_SEVERITY: dict[Verdict, Severity] = {
    "overshot": "critical",
    "shock": "warning",
    "overshoots": "warning",
    "edge": "info",
    "first": "info",
}


@dataclass(frozen=True, slots=True)
class Shock:
    """What was found."""

    verdict: Verdict
    since: int
    reading: Reading
    usual: float
    """Nats, of the readings before; NaN = not known yet."""
    before: float
    rate: float
    """Learning rates at the reading before and at this one; NaN = not known."""

    @property
    def raised(self) -> bool:
        """Whether the learning rate jumped since the reading before."""
        return self.rate > thresholds.JUMPED * self.before

    @property
    def single(self) -> bool:
        """Whether it is about one update."""
        return self.verdict in ("overshot", "shock")

    def after(self, before: Shock | None) -> Shock:
        """The same, begun with what was found at the reading before if that is of its kind."""
        return replace(self, since=before.since) if before and before.single == self.single else self

    @property
    def slower(self) -> str:
        """The learning rate to go on with."""
        if self.raised:
            return f"lr {words.rate(self.before)} as before"
        return words.slower(self.rate, 10 if self.single else 3)


def finding(shock: Shock, updates: Updates) -> Finding:
    """All of it, in words."""
    reading = shock.reading
    numbers = {
        "output_change_kl": reading.kl,
        "usual output_change_kl": shock.usual,
        "total_output_change_ratio": reading.change,
        "trust_ratio": reading.trust,
        "probe loss change": reading.actual,
        "learning_rate": shock.rate,
        "learning_rate before": shock.before if shock.raised else float("nan"),
    }
    return Finding(
        severity=_SEVERITY[shock.verdict],
        action=_action(shock, updates),
        cause=_cause(shock),
        remedies=_remedies(shock),
        evidence=words.known(numbers),
        since=shock.since,
        ruled_out=_ruled_out(shock),
    )


def _action(shock: Shock, updates: Updates) -> str:
    reading, slower = shock.reading, shock.slower
    match shock.verdict:
        case "overshot":
            rise = f"by {reading.actual:.2g}" if isfinite(reading.actual) else "beyond all bounds"
            return (
                f"has overshot: the update of step {shock.since} raised the probe's loss {rise} where "
                f"its gradient promised a fall. Go back to before step {shock.since} and on with {slower}; each more "
                "such step undoes dozens"
            )
        case "shock":
            known = isfinite(shock.usual)
            times = f", {words.whole(reading.size / shock.usual)} times what updates do here" if known else ""
            far = f"by {reading.size:.2g} nats{times}" if isfinite(reading.size) else "beyond all bounds"
            return (
                f"has taken a step that is too large: the update of step {shock.since} moved its predictions {far}. "
                f"Keep the last checkpoint from before it; if it was not meant, go "
                f"on with {slower} before the loss follows"
            )
        case "overshoots":
            return (
                f"has updates that overshoot since step {shock.since}: they keep less than .3 of what their gradients "
                f"promise. Cut to {slower} now; the loss follows within some 10 to 100 steps"
            )
        case "edge":
            return (
                f"is at the edge of stability since step {shock.since}: {_kept(updates.trust)}. Nothing to "
                "do while the loss falls; do not raise the learning rate"
            )
        case "first":
            return (
                f"has changed its output by {reading.change:.2g} of itself in update {shock.since}. Restart with a "
                "warm-up: with Post-LN such a start mostly stalls, for hundreds of steps or for good"
            )


def _kept(trust: float) -> str:
    if trust > 0:
        return f"updates keep {trust:.2g} of what their gradients promise"
    return "updates raise the probe's loss where their gradients promise a fall"


def _cause(shock: Shock) -> str:
    if shock.verdict == "first":
        return (
            "The first update is too large for these weights. With Adam it moves each of them by the whole learning "
            "rate in the direction of its sign; with plain SGD it is as large as the first gradients are."
        )
    if shock.raised:
        return f"The learning rate went from {words.rate(shock.before)} to {words.rate(shock.rate)}."
    if not shock.single:
        return "The learning rate is at the limit that the curvature along the update allows."
    return (
        "The update moved the output further than those before, at the same learning rate: gradients of another scale, "
        "a lost optimizer state, or, with Adam, a second moment that lags behind."
    )


def _remedies(shock: Shock) -> tuple[str, ...]:
    if shock.verdict == "first":
        return (
            "Warm the learning rate up over some hundred steps.",
            "Start at a tenth of the learning rate.",
            "Use Pre-LN, norms on both sides (Peri-LN), or DeepNorm's scales.",
        )
    jumped = (f"Look at the schedule: the learning rate jumped at step {shock.since}.",)
    lost = ("If it was resumed: see that the optimizer's state was loaded too.",)
    return (
        *(jumped if shock.raised else lost if shock.single else ()),
        f"Go on with {shock.slower}, and end the ramp it is on.",
        f"Go back to a checkpoint from before step {shock.since} if the loss does not return within 50 steps.",
        "Clip gradients at 1; with Adam, lower beta2 to .95.",
    )


def _ruled_out(shock: Shock) -> tuple[str, ...]:
    if shock.verdict == "first":
        return ()
    reasons = []
    if isfinite(shock.rate) and isfinite(shock.before) and not shock.raised:
        reasons.append(f"a jump of the learning rate: it was {words.rate(shock.before)} at the reading before")
    if shock.single and isfinite(shock.usual):
        reasons.append(f"a slow drift: the median of the eight readings before it is {shock.usual:.2g} nats")
    return tuple(reasons)
