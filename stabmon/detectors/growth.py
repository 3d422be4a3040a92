"""Growth as a power of time, x ~ t^p, of many sites at once."""

from __future__ import annotations

from math import log

import numpy as np

from stabmon.detectors.arrays import Bools, Floats
from stabmon.detectors.thresholds import blowup as thresholds
from stabmon.detectors.trail import Trail


def power_trail() -> Trail:
    """For ln x over ln t: its slope is p over the readings since t / 1.4."""
    return Trail(log(thresholds.WINDOW), log(thresholds.SPACING))


def since_when(since: Floats, holds: Bools, known: Bools, step: int) -> Floats:
    """The step since when something holds, float[sites]; NaN: it does not. What is not known stays as it was."""
    begun = np.where(np.isnan(since), step, since)
    return np.where(known, np.where(holds, begun, np.nan), since)
