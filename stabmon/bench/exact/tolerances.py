"""How far a reading may be from its second computation, and why."""

from __future__ import annotations

from collections.abc import Mapping

TOLERANCE = 1e-4
"""Largest relative error of what is computed in float32, whatever the precision of the training: both sides take their
numbers from the same tensors."""
FLOOR = 1e-6
"""Of |b| in |a - b| / max(|b|, floor)."""
FLOORS: Mapping[str, float] = {
    "actual_loss_change": 1e-2,  # nats: a difference of two float32 losses, off by a rounding of theirs
    "trust_ratio": 1.0,  # that difference, divided
    "output_change_ratio": 1e-2,  # a difference of two float32 outputs, off by a rounding of theirs
    "epsilon_share": 1e-2,
    "token_similarity": 1e-1,  # cosines, -1 to 1
    "logit_mean": 1e-1,  # a mean of numbers of either sign
}
"""Where another floor holds."""


def floor(statistic: str) -> float:
    """Under which an absolute error counts."""
    return FLOORS.get(statistic, FLOOR)
