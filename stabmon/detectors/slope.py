"""Robust slopes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def theil_sen(x: Floats, y: Floats) -> Floats:
    """Slope of each column of y, float[readings, sites], over x, float[readings]: the median of the slopes of
    all pairs of readings (Sen 1968). NaN readings are left out; NaN where fewer than two are left.
    """
    first, second = np.triu_indices(len(x), 1)
    slopes = (y[second] - y[first]) / (x[second] - x[first])[:, None]
    missing = np.isnan(slopes).all(axis=0)
    slopes[:, missing] = 0
    median: Floats = np.nanmedian(slopes, axis=0) if len(slopes) else np.zeros(y.shape[1])
    return np.where(missing, np.nan, median)
