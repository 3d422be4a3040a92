"""Which taps a level adds to those of `light`, which every run has."""

from __future__ import annotations

from collections.abc import Callable

from stabmon.taps import Tap
from stabmon.taps.attention.tap import Attention
from stabmon.taps.branches.tap import Branches
from stabmon.taps.experts import Experts
from stabmon.taps.extremes import Extremes
from stabmon.taps.optimizer.state import OptimizerState
from stabmon.taps.output_logits import OutputLogits
from stabmon.taps.parts import Parts
from stabmon.taps.units import Units

STANDARD: tuple[Callable[[Parts], Tap], ...] = (Extremes, Branches, OptimizerState, OutputLogits)
"""What `standard` reads beyond `light`."""
DEEP: tuple[Callable[[Parts], Tap], ...] = (Attention, Experts, Units)
"""What `deep` reads beyond `standard`."""


def extra_taps(level: str, parts: Parts) -> list[Tap]:
    """The taps of `standard` or `deep` that `light` has not."""
    chosen = {"light": (), "standard": STANDARD, "deep": (*STANDARD, *DEEP)}[level]
    return [make(parts) for make in chosen]
