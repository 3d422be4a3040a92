"""What an alert of dead lower layers says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stabmon.detectors import words
from stabmon.detectors.stall_task import Task
from stabmon.detectors.thresholds import dead_layers as thresholds
from stabmon.detectors.thresholds.stall import LEARNABLE, RECOVERED
from stabmon.records import Finding


@dataclass(frozen=True, slots=True)
class Dead:
    """What was found; numbers are the worst block's, NaN where not known."""

    by_epsilon: bool
    layers: Sequence[int]
    since: int
    ratio: float
    """Its gradient over the last block's."""
    own: float
    """That in the run's first steps."""
    epsilon: float
    """Its epsilon_share."""
    epsilon_of_last: float
    share: float
    """The context share."""
    progress: float
    """Loss over the first loss."""


def finding(dead: Dead, task: Task) -> Finding:
    """All of it, in words."""
    action, cause, remedies = _epsilon_floor(dead) if dead.by_epsilon else _no_gradient(dead)
    values = {
        "lower_upper_grad_ratio": dead.ratio,
        "ratio_in_the_first_steps": dead.own,
        "epsilon_share": dead.epsilon,
        "epsilon_share_of_the_last_layer": dead.epsilon_of_last,
        "context_share": dead.share,
        **task.losses,
    }
    return Finding(
        severity="warning",
        action=action,
        cause=cause,
        remedies=remedies,
        evidence=words.known(values),
        since=dead.since,
        ruled_out=_ruled_out(dead, task),
    )


def _layers(numbers: Sequence[int]) -> str:
    if len(numbers) == 1:
        return f"layer {numbers[0]}"
    unbroken = list(numbers) == list(range(numbers[0], numbers[-1] + 1))
    return f"layers {numbers[0]} to {numbers[-1]}" if unbroken else "layers " + ", ".join(map(str, numbers))


def _no_gradient(dead: Dead) -> tuple[str, str, tuple[str, ...]]:
    return (
        f"has layers that hardly learn: {_layers(dead.layers)} with {dead.ratio:.0e} of the last layer's gradient "
        f"since step {dead.since}. Look at them before going on; what they could learn is lost meanwhile",
        "The gradient fades on its way down: norms after each sum shrink it, or something cuts the layers off from the "
        "loss. Under Adam they still move, but by noise.",
        (
            "Check that nothing cuts them off: .detach(), no_grad(), a gate at 0, weights loaded in part.",
            "Restart with a longer warm-up, or with a third of the learning rate.",
            "Use Pre-LN, DeepNorm's residual scale, or B2T's skip past all norms but the last.",
        ),
    )


def _epsilon_floor(dead: Dead) -> tuple[str, str, tuple[str, ...]]:
    return (
        f"is at Adam's epsilon floor: in {_layers(dead.layers)} epsilon, not the gradient, sets {dead.epsilon:.0%} of "
        f"the updates since step {dead.since}. Make epsilon smaller; until then they learn ever less",
        "Gradients are so small that sqrt(v) is under ten times epsilon: updates shrink with them, and the learning "
        "rate no longer means what it says.",
        (
            "Set Adam's epsilon to 1e-12 or, for large models, 1e-15; weights and moments can stay.",
            "Check what the loss is divided by: gradients shrink with it.",
            "Use an update without an epsilon (Adam-atan2).",
        ),
    )


def _ruled_out(dead: Dead, task: Task) -> tuple[str, ...]:
    said = (
        (task.gap > LEARNABLE, f"nothing to learn: the left neighbour is worth {task.gap:.2f} nats"),
        (dead.share >= RECOVERED, f"a stall: the context share is {dead.share:.2g}"),
        (dead.progress >= thresholds.CONVERGED, f"converged: the loss is at {dead.progress:.0%} of the first"),
        (
            dead.epsilon_of_last <= thresholds.EPSILON,
            f"small gradients everywhere: epsilon sets {dead.epsilon_of_last:.0%} of the last layer's updates",
        ),
        (
            not dead.by_epsilon and dead.own > thresholds.RATIO,
            f"how this model starts: the ratio was {dead.own:.2g} in the first steps",
        ),
    )
    return words.that_hold(said)
