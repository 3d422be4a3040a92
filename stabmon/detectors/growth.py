"""Growth as a power of time, x ~ t^p, of many sites at once."""

from __future__ import annotations

from math import log

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stabmon.detectors.slope import Floats
from stabmon.detectors.thresholds import blowup as thresholds
from stabmon.detectors.trail import Trail

Mask = NDArray[np.bool_]


def logs_of(values: ArrayLike) -> Floats:
    """ln of what is finite and above 0, else NaN."""
    x = np.asarray(values, np.float64)
    return np.log(np.where(np.isfinite(x) & (x > 0), x, np.nan))


def power_trail() -> Trail:
    """For ln x over ln t: its slope is p over the readings since t / 1.4."""
    return Trail(log(thresholds.WINDOW), log(thresholds.SPACING))


def since_when(since: Floats, holds: Mask, known: Mask, step: int) -> Floats:
    """The step since when something holds, float[sites]; NaN: it does not. What is not known stays as it was."""
    begun = np.where(np.isnan(since), step, since)
    return np.where(known, np.where(holds, begun, np.nan), since)
