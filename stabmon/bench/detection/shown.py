"""What a loss shows, whatever the run was meant to be. No detector's reading goes in here.

Every line has a band around it, fixed before any detector was judged: a run that ends inside is graded as neither.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from stabmon.bench.detection.curves import START_STEPS, Curve, Floats, moving, stretches

Sight = Literal["BLOW-UP", "STALL", "SPIKE", "DELAYED", "PLATEAU", "HEALTHY", "UNCLEAR"]
NEAR, RISE, GAP, BAND = 0.15, 0.3, 0.1, 0.05
"""Nats. NEAR the unigram loss a model uses no context (stalls were measured within .03 of it, what learns passes it
quickly); a RISE of .3 is ten times the noise of the moving average; under a GAP of .1 a bigram is worth nothing
(measured on independent tokens: .005). BAND is the half-width around each line."""
PLATEAU_STEPS = 50
"""On the plateau, or over the line of a rise, for it to count."""
RETURN_STEPS = 100
"""A spike is over by then; what takes longer, and yet comes back, is called neither."""


@dataclass(frozen=True, slots=True)
class Shown:
    """PLATEAU: at the unigram loss to the end, and no bigram does better. UNCLEAR: `why` tells."""

    what: Sight
    onset: int | None = None
    """Step at which it began."""
    why: str = ""
    stalled: bool = False
    """Of a blow-up: it ended at the unigram loss, using no context."""
    spiked: int | None = None
    """Step of the first spike, also where the run ended as something else."""
    gap: float = float("nan")
    """Unigram minus bigram loss, at the end."""
    left: float = float("nan")
    """Loss minus unigram loss, at the end."""


def shown(curve: Curve) -> Shown:
    """Of one run by itself."""
    finite = curve.finite
    if not len(finite.steps):
        return Shown("BLOW-UP", int(curve.steps[0]), "the loss is not finite")
    average = moving(finite.even)
    excess = average - np.minimum.accumulate(average)
    rises = stretches(excess > RISE)
    if len(finite.steps) < len(curve.steps):
        began = rises[-1][0] if rises and rises[-1][1] == len(excess) else len(excess)
        return Shown("BLOW-UP", int(curve.steps[began]), "the loss is not finite")
    if rises and rises[-1][1] == len(excess):
        return _at_the_end(finite, excess, rises[-1][0])
    if abs(excess[-1] - RISE) < BAND:
        return Shown("UNCLEAR", why=f"ends {excess[-1]:.2f} above its lowest")
    return _calm(finite, excess)


def _at_the_end(curve: Curve, excess: Floats, began: int) -> Shown:
    if len(excess) - began < PLATEAU_STEPS:
        return Shown("UNCLEAR", why=f"rises {len(excess) - began} steps before its end")
    if excess[-1] < RISE + BAND:
        return Shown("UNCLEAR", why=f"ends {excess[-1]:.2f} above its lowest")
    stalled = _plateau(curve, None).what == "STALL"
    return Shown("BLOW-UP", int(curve.steps[began]), f"ends {excess[-1]:.2f} above its lowest", stalled)


def _calm(curve: Curve, excess: Floats) -> Shown:
    """A run that is not above its lowest at the end."""
    # Untrained networks may jump in their first steps.
    later = [(first, end) for first, end in stretches(excess > RISE) if curve.steps[first] > START_STEPS]
    late = [end - first for first, end in later if end - first > RETURN_STEPS]
    if late:
        return Shown("UNCLEAR", why=f"rose, and came back only after {late[0]} steps")
    spiked = int(curve.steps[later[0][0]]) if later else None
    on_plateau = _plateau(curve, spiked)
    if on_plateau.what in ("STALL", "UNCLEAR", "PLATEAU"):
        return on_plateau
    if spiked is not None:
        first, end = later[0]
        peak = float(excess[first:end].max())
        what: Sight = "SPIKE" if peak > RISE + BAND else "UNCLEAR"
        return Shown(what, spiked, f"rose by {peak:.2f} for {end - first} steps", left=on_plateau.left)
    highest = float(excess[curve.steps > START_STEPS].max(initial=0.0))
    if highest > RISE - BAND:
        return Shown("UNCLEAR", why=f"rose by {highest:.2f} and came back")
    return on_plateau


def _plateau(curve: Curve, spiked: int | None) -> Shown:
    """Where the run is, against a model that ignores context."""
    apart, gaps = moving(curve.loss - curve.unigram), moving(curve.unigram - curve.bigram)
    left, gap = float(apart[-1]), float(gaps[-1])
    if np.isnan(left):
        return Shown("UNCLEAR", why="the unigram loss is not known")
    near = stretches(np.abs(apart) <= NEAR)
    told = f"ends {abs(left):.2f} {'above' if left > 0 else 'below'} the unigram loss"
    if abs(abs(left) - NEAR) < BAND or left > NEAR:
        return Shown("UNCLEAR", why=told, left=left)
    if left < -NEAR:
        long = [(first, end) for first, end in near if end - first >= PLATEAU_STEPS]
        if long:
            return Shown("DELAYED", int(curve.steps[long[0][0]]), told, spiked=spiked, gap=gap, left=left)
        return Shown("HEALTHY", why=told, spiked=spiked, gap=gap, left=left)
    onset, steps = int(curve.steps[near[-1][0]]), len(apart) - near[-1][0]
    if steps < PLATEAU_STEPS:
        return Shown("UNCLEAR", why=f"{told}, and has been near it for {steps} steps only", left=left)
    if abs(gap - GAP) < BAND:
        return Shown("UNCLEAR", why=f"{told}; a bigram gains {gap:.2f}", left=left)
    what: Sight = "STALL" if gap > GAP else "PLATEAU"
    return Shown(what, onset, f"{told}; a bigram gains {gap:.2f}", spiked=spiked, gap=gap, left=left)
