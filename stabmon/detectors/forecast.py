"""When a trend crosses a line: bounds, or nothing where it follows no curve."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, isfinite

import numpy as np

from stabmon.detectors.arrays import Floats

LEAST = 5
"""Readings."""
FITS = 0.8
"""R^2 of the line, below which nothing is foretold. Chosen."""
REACH = 120.0
SPACING = 10.0
"""Steps that a forecast looks back, and between its readings. Of ramps: 40 steps alone were right half as often."""
FAR = 2000
"""Steps: no trend of a training holds for longer."""


@dataclass(frozen=True, slots=True)
class Crossing:
    """Steps from the last reading until the line is crossed. Of 325 forecasts in six runs on ramps of the learning
    rate, 208 held the step at which it was; the earlier bound was .4 to 1.6 times as far off (5 to 95 %)."""

    earliest: float
    latest: float
    """Inf: perhaps never."""

    def __str__(self) -> str:
        if not self.latest <= FAR:
            return f"in {max(1, round(self.earliest))} steps at the earliest"
        low, high = (max(1, round(steps)) for steps in (self.earliest, self.latest))
        return f"in {low} to {high} steps" if low < high else f"in about {low} step{'s' if low > 1 else ''}"


def crossing(steps: Sequence[float], values: Sequence[float], line: float) -> Crossing | None:
    """When values, rising over the steps, reach the line. A straight fit and a quadratic one give the bounds (growth
    that accelerates is there before the straight line, by the quadratic one at the earliest), each of all readings and
    of the last third. None where fewer than five readings, a fall, R^2 < .8 or more than 2,000 steps say that there is
    no forecast.
    """
    if len(steps) < LEAST or not np.isfinite(values).all():
        return None
    x, y = np.asarray(steps, float) - steps[-1], np.asarray(values, float) - line
    whole, late = _bounds(x, y), _bounds(x[x >= x[0] / 3], y[x >= x[0] / 3])
    if whole is None:
        return None
    times = [time for bounds in (whole, late) for time in bounds or ()]
    return Crossing(min(times), max(times)) if min(times) <= FAR else None


def _bounds(x: Floats, y: Floats) -> tuple[float, float] | None:
    if len(x) < LEAST:
        return None
    slope, level = np.polyfit(x, y, 1)
    spread = float(((y - y.mean()) ** 2).sum())
    if slope <= 0 or spread <= 0 or 1 - float(((y - slope * x - level) ** 2).sum()) / spread < FITS:
        return None
    return max(0.0, -level / slope), _first_root(*np.polyfit(x, y, 2))


def _first_root(bend: float, slope: float, level: float) -> float:
    """First x >= 0 at which bend x^2 + slope x + level is 0 or more; Inf: never."""
    if level >= 0:
        return 0.0
    square = slope**2 - 4 * bend * level
    if square < 0:
        return inf
    # Of the two forms of a root, the one that does not divide by a bend of nearly 0.
    steps = -2 * level / (slope + square**0.5) if slope + square**0.5 > 0 else inf
    return steps if isfinite(steps) and steps >= 0 else inf
