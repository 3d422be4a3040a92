"""Values that are not finite any more."""

from __future__ import annotations

from collections import deque
from math import isfinite, isnan

import numpy as np

from stabmon.catalog import Array
from stabmon.detectors import words
from stabmon.detectors.arrays import of_the_model
from stabmon.detectors.thresholds import nonfinite as thresholds
from stabmon.records import Finding, Site, Snapshot

# In the order in which a step makes them: the first statistic with an Inf names the place.
_FORWARD = ("norm_input_msq", "norm_input_var", "final_norm_input_msq", "loss")
_BACKWARD = ("grad_sq", "total_grad_sq", "update_sq", "weight_sq")


class _Zeros:
    """Losses of exactly 0 that come at once after ordinary ones. One does not count if its gradient shows that it is
    real: a finite one that stabmon itself read (0 too: a policy whose rewards are all alike), or a logged one over 0.
    """

    def __init__(self) -> None:
        self.since = 0
        self.good = 0
        """The last step with an ordinary loss."""
        self._count = 0
        self._first = 0.0
        self._before: deque[float] = deque(maxlen=3)

    def read(self, step: int, loss: float, total_grad_sq: float, measured: bool) -> None:
        """`measured`: gradients were read in training, and their sum is finite."""
        if loss == 0 and not (measured or 0 < total_grad_sq < np.inf):
            self._count += 1
            self.since = step if self._count == 1 else self.since
        elif isfinite(loss):
            self._count, self.good = 0, step
            self._first = self._first or abs(loss)
            self._before.append(abs(loss))

    @property
    def hidden(self) -> bool:
        """Whether a NaN is behind them."""
        if self._count < thresholds.ZEROS or len(self._before) < 3:
            return False  # nearly every step
        return min(self._before) > max(thresholds.ZEROS_AFTER, thresholds.ZEROS_AFTER_SHARE * self._first)


class NonFinite:
    """Critical at the first Inf, and at the second loss of exactly 0 that comes at once after ordinary ones; silent on
    steps that were skipped for gradients that are not finite (a loss scaler), or left out before the backward pass for
    a loss that alone is not, unless more than 20 in a row; where they are finite, the loop took no step by itself.
    Where nobody tells of skipped steps, they are those before the first finite gradient at which the loss is finite. A
    loss alone that is not finite is a warning where all gradients were read and are finite: the mean over no targets is
    0/0, and harms no weight.

    Score: the number of statistics that hold an Inf; or skipped steps in a row / 21.
    """

    name = "nonfinite"
    needs: tuple[str, ...] = ("loss", *_FORWARD[:-1], *_BACKWARD, "skipped_steps")

    def __init__(self) -> None:
        self._skips = 0
        self._since: int | None = None
        self._good = 0
        """The last step in which nothing was found."""
        self._found: dict[str, Site] = {}
        self._harmless = False
        """The loss alone is not finite, and the gradients that it gave are."""
        self._zeros = _Zeros()
        self._scaled = False
        """A finite gradient was read: a loss scaler has found its scale."""

    def score(self, snapshot: Snapshot) -> Array:
        """float32[1]: it judges the whole model."""
        skipped = self._skipped(snapshot)
        total = snapshot.scalar("total_grad_sq")
        measured = isfinite(total) and snapshot.layout.slots("grad_sq").size > 0
        self._zeros.read(snapshot.step, snapshot.scalar("loss"), total, measured)
        if not isnan(skipped):
            self._skips = self._skips + 1 if skipped else 0
        if not self._skips:
            self._found = _not_finite(snapshot, self._found)
            self._harmless = measured and set(self._found) == {"loss"}
        score = float(len(self._found)) or max(self._skips / (thresholds.SKIPS + 1), float(self._zeros.hidden))
        if not self._found:
            self._good = snapshot.step
        if score < 1:
            self._since = None
        elif self._since is None:
            hidden = self._zeros.hidden and not self._found
            self._since = self._zeros.since if hidden else snapshot.step - max(self._skips - 1, 0)
        return of_the_model(score, snapshot)

    def explain(self, site: int) -> Finding:
        """The lowest site of the first statistic, in the order of a step, that holds an Inf."""
        assert self._since is not None, "asked without an alert"
        if self._harmless:
            return _targetless(self._since)
        if self._found:
            return self._broken(self._since)
        return _hiding(self._since, self._zeros.good) if self._zeros.hidden else self._skipping(self._since)

    def _skipped(self, snapshot: Snapshot) -> float:
        """1 where the step was skipped because gradients, or the loss, were not finite, else 0; NaN where that is not
        known."""
        total, loss = snapshot.scalar("total_grad_sq"), snapshot.scalar("loss")
        if snapshot.layout.slots("skipped_steps").size:
            skipped = snapshot.scalar("skipped_steps")
            # A log tells of a loss scaler's. In training it is any step that the optimizer did not take.
            if not skipped > 0 or not snapshot.layout.slots("grad_sq").size:
                return skipped
            if isnan(total):  # there was no backward pass
                return 1.0 if set(_not_finite(snapshot, {})) == {"loss"} else total
            return float(not isfinite(total))
        self._scaled = self._scaled or isfinite(total)
        if self._scaled or isnan(total):
            return 0.0
        return float(isfinite(loss) and loss != 0)

    def _broken(self, since: int) -> Finding:
        statistic, where = next(iter(self._found.items()))
        name = _served(statistic)
        place = f"{where.name}, {name}" if where.name else name
        forward = statistic in _FORWARD
        began = "forward pass, or in the update before it" if forward else "backward pass or the update"
        back = words.checkpoint_before(self._good if forward else since)
        return Finding(
            severity="critical",
            action=f"has values that are not finite since step {since} ({place}). Stop it and go back to "
            f"{back}; every further step is lost",
            cause=f"{name} is the first to be Inf or NaN in the order of a step, so it began in the {began}.",
            remedies=(
                f"Roll back to {back} and leave out the next 200 batches.",
                "Roll back and halve the learning rate, or clip gradients at 1.",
                "If it runs in float16: use bfloat16, or float32 for the norms and the softmax.",
                "Look for a division by 0, a log of 0 or a fully masked row in the loss and in attention.",
            ),
            evidence={_served(found): float("inf") for found in self._found},
            since=since,
            site=where,
        )

    def _skipping(self, since: int) -> Finding:
        return Finding(
            severity="critical",
            action=f"has taken no step since step {since}: the loss scaler, or the loop, skips every one. Stop it and "
            f"go back to the last checkpoint before step {since}; {self._skips} steps are lost so far",
            cause=f"{self._skips} steps in a row had gradients, or a loss, that were not finite. A loss scaler has by "
            "then made its scale ever smaller: the overflow is in the model, not in the scale.",
            remedies=(
                "Use bfloat16 instead of float16.",
                "Roll back and halve the learning rate.",
                "Run the forward pass once with torch.autograd.set_detect_anomaly(True) to find the operation.",
            ),
            evidence={"skipped_steps": float(self._skips)},
            since=since,
        )


def _served(statistic: str) -> str:
    """As page and metrics name it: a sum of squares is shown as the norm."""
    return f"{statistic.removesuffix('_sq')}_norm" if statistic.endswith("_sq") else statistic


def _targetless(since: int) -> Finding:
    return Finding(
        severity="warning",
        action=f"has a loss that is not finite since step {since}, but finite gradients, so the weights are sound. "
        "Look for batches without targets; such a step teaches nothing",
        cause="Activations and gradients are finite, so it arose in the loss itself: a mean over no targets is 0/0.",
        remedies=(
            "Leave out batches whose labels are all ignored (-100), such as prompts that fill the whole length.",
            "Look for a division by 0 or a log of 0 in what is reported as the loss.",
        ),
        evidence={"loss": float("inf")},
        since=since,
    )


def _hiding(since: int, good: int) -> Finding:
    """`good`: the last step with another loss."""
    back = words.checkpoint_before(good)
    return Finding(
        severity="critical",
        action=f"has a loss of exactly 0 since step {since}, which hides a NaN. Stop it and go back to "
        f"{back}; every further step is lost",
        cause="The loss fell to 0 from one value to the next: so it looks where a trainer leaves NaN out of its log.",
        remedies=(
            "Switch the filter off to see it (transformers: logging_nan_inf_filter=False).",
            f"Roll back to {back}, and halve the learning rate or clip gradients at 1.",
            "Look for batches without targets: their mean loss is 0/0.",
        ),
        evidence={"loss": 0.0},
        since=since,
    )


def _not_finite(snapshot: Snapshot, before: dict[str, Site]) -> dict[str, Site]:
    """The statistics that hold an Inf, in the order of a step, each with its lowest site; one that was not read
    is as it was before.
    """
    found: dict[str, Site] = {}
    if not before and not np.isinf(snapshot.values).any():
        return found  # nearly every step
    for statistic in (*_FORWARD, *_BACKWARD):
        values = snapshot[statistic]
        broken = np.flatnonzero(np.isinf(values))
        if broken.size:
            found[statistic] = snapshot.layout.sites_of(statistic)[broken[0]]
        elif statistic in before and np.isnan(values).all():
            found[statistic] = before[statistic]
    return found
