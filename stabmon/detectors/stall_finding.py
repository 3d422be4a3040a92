"""What a stall's alert says."""

from __future__ import annotations

from dataclasses import dataclass
from math import expm1, isfinite, log
from typing import Literal

from stabmon.detectors import words
from stabmon.detectors.stall_depth import Depth
from stabmon.detectors.stall_readings import Rate
from stabmon.detectors.stall_task import Task
from stabmon.detectors.thresholds import stall as thresholds
from stabmon.records import Finding, Severity

Verdict = Literal["plateau", "falling", "frozen", "lost", "filled", "swamped", "fell_back", "rising"]

FOR_GOOD: tuple[Verdict, ...] = ("lost", "swamped")
"""It will not resolve at this learning rate."""
MILD: tuple[Verdict | None, ...] = (None, "plateau", "rising")
"""Nothing to be warned of yet."""

_SEVERITY: dict[Verdict, Severity] = {
    "plateau": "info",
    "falling": "warning",
    "frozen": "warning",
    "lost": "critical",
    "filled": "warning",
    "swamped": "critical",
    "fell_back": "critical",
    "rising": "info",
}
_TREND: dict[Verdict, str] = {
    "plateau": "It is not growing back yet",
    "falling": "It is not growing back",
    "frozen": "It neither falls nor grows back",
    "lost": "It is too small to grow back at this learning rate",
    "filled": "Hardly anything of it gets through the last norm",
    "swamped": "Whether it grows or not, hardly anything of it gets through the last norm",
    "fell_back": "It is not growing back",
    "rising": "It is growing back",
}


@dataclass(frozen=True, slots=True)
class Stall:
    """What was found."""

    verdict: Verdict
    since: int
    step: int
    share: float
    slope: float
    probed: bool
    """Whether the share is the probe's."""


def finding(stall: Stall, task: Task, depth: Depth, rate: Rate) -> Finding:
    """All of it, in words."""
    return Finding(
        severity=_SEVERITY[stall.verdict],
        action=_action(stall, task, rate),
        cause=_cause(stall, task),
        remedies=_remedies(stall, task, rate),
        evidence=_evidence(stall, task, depth, rate),
        since=stall.since,
        site=depth.site,
        ruled_out=_ruled_out(stall, task, depth),
    )


def _action(stall: Stall, task: Task, rate: Rate) -> str:
    same = f"every token gets the same answer since step {stall.since}"
    if stall.verdict == "rising":
        left = max(1, round(log(thresholds.RESOLVED / stall.share) / stall.slope))
        return f"is on a plateau that ends in at most {left} steps. Let it run: {same}, but ever less so"
    if stall.verdict == "plateau":
        until = stall.since + thresholds.PATIENT_STEPS
        return f"is on a plateau that may end by itself. Wait until step {until}: {same}, as in a stall, but less so"
    if task.fell_back:
        good = _last_good(stall, task)
        back, lost = words.checkpoint_before(good), words.steps_lost(stall.step - good)
        return f"has lost what it had learnt: {same}. Go back to {back}; {lost}"
    cost = _cost(stall)
    if stall.step < rate.cut_until:
        return (
            f"is not learning yet: {same}. Wait for the cut of step {rate.cut_at} until step {rate.cut_until}; {cost}"
        )
    if stall.verdict == "frozen":
        start = "is stuck"
        same += ", no more and no less so"
    else:
        at = f"lr {words.rate(rate.top)}" if rate.top > 0 else "this learning rate"
        start = f"will not learn at {at}" if stall.verdict in FOR_GOOD else "is not learning"
    return f"{start}: {same}. Restart with {words.slower(rate.top, 3)} or warm-up; {cost}"


def _cost(stall: Stall) -> str:
    lost = stall.step - stall.since
    return "nothing is lost yet" if stall.step <= 100 or lost < 1 else words.steps_lost(lost)


def _last_good(stall: Stall, task: Task) -> int:
    """The last step that knew what was learnt: the loss may tell of its end before the context share does."""
    return min(stall.since - 1, task.learnt_until)


def _cause(stall: Stall, task: Task) -> str:
    how = (
        "An update was too large and drowned"
        if task.fell_back
        else "The first updates moved all positions alike and drowned"
    )
    if isfinite(task.worth):
        known = f"there is something to learn ({_source(task)} alone is worth {task.worth:.2f} nats)"
    elif isfinite(task.excess):
        known = (
            "whether there is anything to learn is unknown (neither a neighbour nor a mean input tells of the targets)"
        )
    else:
        known = "whether there is anything to learn is unknown (no targets were given)"
    return f"{how} what tells the positions apart. {_TREND[stall.verdict]}, and {known}."


def _source(task: Task) -> str:
    return "the left neighbour" if isfinite(task.gap) else "the mean input of each class"


def _remedies(stall: Stall, task: Task, rate: Rate) -> tuple[str, ...]:
    if stall.verdict == "rising":
        return (
            "Let it run; stop it only if the plateau outlasts the forecast.",
            "A warm-up would shorten the next one.",
        )
    if stall.verdict == "plateau":
        return (
            "Let it run: you are told as soon as it grows back, or goes too deep to.",
            "A higher learning rate makes it worse, a warm-up or a lower one shortens the next one.",
        )
    return roll_back(_last_good(stall, task), rate.top) if task.fell_back else restart(rate.top)


def roll_back(good: int, rate: float) -> tuple[str, ...]:
    """What to do about a run that lost what it had learnt after that step, at that learning rate."""
    return (
        f"Roll back to {words.checkpoint_before(good)}, and go on with {words.slower(rate, 3)}.",
        "Look at what came just before: a raised learning rate, a batch, a norm input that grew.",
        "Clip gradients at 1; with Adam, lower beta2 to .95.",
    )


def restart(rate: float) -> tuple[str, ...]:
    """What to do about a run that never learnt anything, at that learning rate."""
    return (
        f"Restart with {words.slower(rate, 3)}, or with a warm-up of 300 steps or more: nothing was learnt that would "
        "be lost.",
        f"Without a restart: cut the learning rate x10 at once, to {words.slower(rate, 10)}. Cut at step 5 such a run "
        "left its plateau at step 360, cut at step 30 only at 920.",
        "Use Pre-LN, or DeepNorm's initialisation and residual scale.",
    )


def _pace(slope: float) -> str:
    change = 100 * abs(expm1(slope))
    return f"{'grows' if slope > 0 else 'shrinks'} by {change:.2g} % a step" if change >= 0.05 else "does not change"


def _evidence(stall: Stall, task: Task, depth: Depth, rate: Rate) -> dict[str, float]:
    values = {
        "probe_context_share" if stall.probed else "context_share": stall.share,
        "context_share_slope": stall.slope,
        **task.losses,
        "loss_above_unigram": task.excess,
        "bigram_gap": task.gap,
        "class_mean_gap": float("nan") if isfinite(task.gap) else task.worth,
        "token_similarity": depth.similarity,
        "lower_upper_grad_ratio": depth.ratio,
        "final_norm_input_msq": depth.stream.length,
        "learning_rate": rate.top,
    }
    return words.known(values)


def _ruled_out(stall: Stall, task: Task, depth: Depth) -> tuple[str, ...]:
    rising = stall.verdict == "rising"
    said = (
        (task.worth > thresholds.LEARNABLE, f"nothing to learn: {_source(task)} is worth {task.worth:.2f} nats"),
        (task.excess > -thresholds.LEARNING, f"learning: the loss is {task.excess:+.2f} nats from the unigram loss"),
        (task.began > -thresholds.LEARNING, f"pretrained weights: the first loss was {task.began:+.2f} nats from it"),
        (
            not rising and depth.ratio < thresholds.FADED,
            f"a dip that passes: the lowest block's gradient is {depth.ratio:.1e} of the highest's",
        ),
        (
            stall.verdict not in ("rising", "plateau") and stall.slope <= thresholds.RISING,
            f"a plateau that ends: the context share {_pace(stall.slope)}",
        ),
        (
            stall.verdict in ("filled", "swamped"),
            f"a plateau that ends: of the stream 1/{depth.stream.length:.0f} is left in what the last norm reads",
        ),
        (rising, f"a stall for good: the context share {_pace(stall.slope)}"),
        (stall.probed, "noise of dropout or rounding: the share is the probe's"),
    )
    return words.that_hold(said)
