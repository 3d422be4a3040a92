"""What detectors do with arrays: names of their types, and the ways in and out that many of them share."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stabmon.catalog import Array
from stabmon.records import Snapshot

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Indices = NDArray[np.intp]


def of_the_model(score: float, snapshot: Snapshot, stored: str = "loss") -> Array:
    """One score for the whole model, float32[1]; empty where the layout lacks that stored statistic."""
    return np.array([score] * snapshot.layout.slots(stored).size, np.float32)


def beside(snapshot: Snapshot, statistic: str, count: int) -> Array:
    """A statistic that is taken at the same `count` sites as another one; NaN where the layout lacks it, as that of an
    older run log may.
    """
    values = snapshot[statistic]
    return values if values.size == count else np.full(count, np.nan, np.float32)


def logs_of(values: ArrayLike) -> Floats:
    """ln of what is finite and above 0, else NaN."""
    x = np.asarray(values, np.float64)
    return np.log(np.where(np.isfinite(x) & (x > 0), x, np.nan))
