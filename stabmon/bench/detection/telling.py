"""Which class an alert tells of."""

from __future__ import annotations

from collections.abc import Mapping

from stabmon.bench.detection.outcomes import Class
from stabmon.records import Alert

TELLS_OF: Mapping[str, tuple[Class, ...]] = {
    "nonfinite": ("BLOW-UP", "SPIKE"),
    "context_stall": ("STALL",),
    "dead_layers": ("STALL", "IMPLEMENTATION"),
    "flat": ("STALL",),
    "residual_blowup": ("BLOW-UP",),
    "exploded": ("BLOW-UP", "SPIKE"),
    "diverged": ("BLOW-UP",),
    "logit_drift": ("BLOW-UP",),
    "precision": ("BLOW-UP",),
    "attention_blowup": ("ATTENTION",),
    "update_shock": ("SPIKE", "BLOW-UP"),
    "gradient_spike": ("SPIKE", "BLOW-UP"),
    "spike": ("SPIKE", "BLOW-UP"),
    "loss_shift": ("SPIKE", "BLOW-UP"),
    "dead_units": ("SPIKE", "BLOW-UP"),
    "wiring": ("IMPLEMENTATION",),
    "rank_trouble": ("IMPLEMENTATION",),
}
"""By detector, the likeliest first. A spike and a blow-up begin alike, with an update that goes too far; only the
hundred steps after it tell one from the other, so an alert at its beginning is right of both.
"""
DATA_FAULT = "data_fault"
"""Evidence of `loss_shift`: 1 where it blames the data, 0 where the optimizer."""


def tells_of(alert: Alert) -> tuple[Class, ...]:
    """AssertionError: a default detector that nobody named here."""
    if alert.detector == "loss_shift" and alert.evidence.get(DATA_FAULT, 0.0) >= 0.5:
        return ("DATA",)
    assert alert.detector in TELLS_OF, f"which class does {alert.detector} tell of? name it in TELLS_OF"
    return TELLS_OF[alert.detector]
