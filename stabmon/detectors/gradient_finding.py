"""What the alert of larger gradients says."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from math import exp, isfinite
from typing import Literal

from stabmon.detectors.gradient_readings import News
from stabmon.detectors.thresholds import updates as thresholds
from stabmon.records import Finding, Severity, Site

Kind = Literal["step", "jump", "slow", "explosion"]
_SEVERITY: dict[Kind, Severity] = {"step": "info", "jump": "warning", "slow": "warning", "explosion": "critical"}
_WHAT = {
    "total_grad_norm": "the norm of all gradients",
    "grad_norm": "a block's gradient",
    "update_norm": "a block's update per learning rate",
    "rms_t": "a block's gradient against Adam's second moment (RMS_t)",
}


@dataclass(slots=True)
class Spike:
    """What was found, while it lasts. Level and rises are logarithms."""

    kind: Kind
    since: int
    statistic: str
    _: KW_ONLY
    level: float
    """What was to be expected."""
    size: float
    """The rise that alerts."""
    rise: float
    """Now."""
    stream: int | None = None
    """Of the blocks' streams; None = the total."""
    site: Site | None = None
    top: float = 0.0
    """Highest so far."""
    points: int = 1

    def lasts(self, rise: float) -> bool:
        """Until it is back by half, or the new level."""
        self.points += 1
        self.rise = rise
        self.top = max(self.top, rise)
        return rise > self.size / 2 and self.points <= thresholds.POINTS


def finding(spike: Spike, news: News, steady: bool) -> Finding:
    """All of it, in words. `steady`: the learning rate is read, and had no known change."""
    times, level = exp(max(spike.top, spike.rise)), exp(spike.level)
    odd = news.excess > news.noise
    return Finding(
        severity=_SEVERITY[spike.kind],
        action=_action(spike, times),
        cause=_cause(spike, odd),
        remedies=_remedies(spike),
        evidence={
            spike.statistic: level * times,
            f"usual {spike.statistic}": level,
            "times": times,
            **({"context_share": news.share} if isfinite(news.share) else {}),
        },
        since=spike.since,
        site=spike.site,
        ruled_out=_ruled_out(news, steady, odd),
    )


def _action(spike: Spike, times: float) -> str:
    what, since = _WHAT[spike.statistic], spike.since
    match spike.kind:
        case "explosion":
            return (
                f"is exploding: {what} grew x{times:.3g} since step {since}, by e and more a step. Stop it or skip the "
                f"next batches, and go back to a checkpoint before step {since}; the loss follows within a step or two"
            )
        case "step":
            return (
                f"has one step in which {what} is x{times:.3g} its level (step {since}). Nothing to do unless it comes "
                "again: mostly it is one odd batch"
            )
        case "jump":
            return (
                f"has a gradient spike: {what} is x{times:.3g} its level since step {since}. Keep the last checkpoint "
                f"from before step {since}, and watch the loss; where it follows, it does so within 1 to 8 steps"
            )
        case "slow":
            return (
                f"has growing gradients: {what} is x{times:.3g} its level since step {since}. Keep the last checkpoint "
                "from before it; where the loss follows, it does so within 10 to 100 steps"
            )


def _cause(spike: Spike, odd: bool) -> str:
    if spike.kind == "explosion":
        return "Each update made the next gradient larger: the step is too large for the curvature it met."
    if odd:
        return "The loss rose with it, so batches are unlike those before, or an update was too large."
    if spike.kind == "slow":
        return "The loss is as it was: weights move to where it is steeper, as attention that sharpens does."
    return "The loss is as it was: updates were too large for a few coordinates, or a batch repeats a few tokens."


def _remedies(spike: Spike) -> tuple[str, ...]:
    return (
        f"Look at the batches of step {spike.since} and the few before it: repeated or broken text, other languages.",
        "Clip gradients at 1, or at some percentile of their own past.",
        "With Adam: lower beta2 to .95, so that its second moment follows.",
        "If they come again: cut the learning rate to two thirds, and normalise queries and keys.",
        *(("Go on from the checkpoint with the next 200 batches left out.",) if spike.kind == "explosion" else ()),
    )


def _ruled_out(news: News, steady: bool, odd: bool) -> tuple[str, ...]:
    reasons = []
    if steady:
        reasons.append("a change of the learning rate: none by x1.5 in the last 64 steps")
    if news.share >= thresholds.PLATEAU_SHARE:
        reasons.append(f"the end of a plateau: context share is {news.share:.2g} and more")
    if isfinite(news.excess) and not odd:
        reasons.append(f"batches unlike the others: their losses are {exp(news.excess):.3g} of the level")
    return tuple(reasons)
