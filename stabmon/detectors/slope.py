"""Robust slopes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def theil_sen(x: Floats, y: Floats) -> Floats:
    """Slope of each column of y, float[readings, sites], over x, float[readings]: the median of the slopes of
    all pairs of readings (Sen 1968). NaN readings are left out; NaN where fewer than two are left. Takes two
    readings or more.
    """
    first, second = np.triu_indices(len(x), 1)
    slopes = (y[second] - y[first]) / (x[second] - x[first])[:, None]
    gaps = np.isnan(slopes)
    if not gaps.any():  # numpy's nanmedian takes ten times as long
        middle: Floats = np.median(slopes, axis=0)
        return middle
    missing = gaps.all(axis=0)
    slopes[:, missing] = 0
    return np.where(missing, np.nan, np.nanmedian(slopes, axis=0))
