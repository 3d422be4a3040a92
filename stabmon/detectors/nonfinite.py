"""Values that are not finite any more."""

from __future__ import annotations

import numpy as np

from stabmon.catalog import Array
from stabmon.records import Finding, Site, Snapshot

# In the order in which a step makes them: the first statistic with an Inf names the place.
_FORWARD = ("norm_input_msq", "norm_input_var", "final_norm_input_msq", "loss")
_BACKWARD = ("grad_sq", "total_grad_sq", "update_sq", "weight_sq")

# A loss scaler finds its scale within about 16 halvings (2^16 -> 1); more in a row is no search any more.
SKIPS = 20


class NonFinite:
    """Critical at the first Inf; silent on steps that a loss scaler skipped, unless more than 20 in a row.

    Score: the number of statistics that hold an Inf; or skipped steps in a row / 21.
    """

    name = "nonfinite"
    needs: tuple[str, ...] = ("loss", *_FORWARD[:-1], *_BACKWARD, "skipped_steps")

    def __init__(self) -> None:
        self._skips = 0
        self._since: int | None = None
        self._found: dict[str, Site] = {}

    def score(self, snapshot: Snapshot) -> Array:
        """float32[1]: it judges the whole model."""
        skipped = snapshot.scalar("skipped_steps")
        if not np.isnan(skipped):
            self._skips = self._skips + 1 if skipped else 0
        if not self._skips:
            self._found = _not_finite(snapshot, self._found)
        score = float(len(self._found)) if self._found else self._skips / (SKIPS + 1)
        if score < 1:
            self._since = None
        elif self._since is None:
            self._since = snapshot.step - max(self._skips - 1, 0)
        return np.full(len(snapshot["loss"]), score, np.float32)

    def explain(self, site: int) -> Finding:
        """The lowest site of the first statistic, in the order of a step, that holds an Inf."""
        assert self._since is not None, "asked without an alert"
        return self._skipping(self._since) if not self._found else self._broken(self._since)

    def _broken(self, since: int) -> Finding:
        statistic, where = next(iter(self._found.items()))
        place = f"{where.name}, " if where.name else ""
        half = "forward pass" if statistic in _FORWARD else "backward pass or the update"
        return Finding(
            severity="critical",
            action=f"has values that are not finite since step {since} ({place}{statistic}). Stop it and go back to "
            f"the last checkpoint before step {since}; every further step is lost",
            cause=f"{statistic} is the first to be Inf or NaN in the order of a step, so it began in the {half}.",
            remedies=(
                f"Roll back to a checkpoint before step {since} and leave out the next 200 batches.",
                "Roll back and halve the learning rate, or clip gradients at 1.",
                "If it runs in float16: use bfloat16, or float32 for the norms and the softmax.",
                "Look for a division by 0, a log of 0 or a fully masked row in the loss and in attention.",
            ),
            evidence={name: float("inf") for name in self._found},
            since=since,
            site=where,
        )

    def _skipping(self, since: int) -> Finding:
        return Finding(
            severity="critical",
            action=f"has taken no step since step {since}: the loss scaler skips every one. Stop it and go back to the "
            f"last checkpoint before step {since}; {self._skips} steps are lost so far",
            cause=f"{self._skips} steps in a row had gradients that were not finite, at an ever smaller loss scale: "
            "the overflow is in the model, not in the scale.",
            remedies=(
                "Use bfloat16 instead of float16.",
                "Roll back and halve the learning rate.",
                "Run the forward pass once with torch.autograd.set_detect_anomaly(True) to find the operation.",
            ),
            evidence={"skipped_steps": float(self._skips)},
            since=since,
        )


def _not_finite(snapshot: Snapshot, before: dict[str, Site]) -> dict[str, Site]:
    """The statistics that hold an Inf, in the order of a step, each with its lowest site; one that was not read
    is as it was before.
    """
    found = {}
    for statistic in (*_FORWARD, *_BACKWARD):
        values = snapshot[statistic]
        broken = np.flatnonzero(np.isinf(values))
        if broken.size:
            found[statistic] = snapshot.layout.sites_of(statistic)[broken[0]]
        elif statistic in before and np.isnan(values).all():
            found[statistic] = before[statistic]
    return found
