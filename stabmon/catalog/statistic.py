"""One row of the catalog, and the formulas that turn stored statistics into derived ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

FLOOR_SQ = 1e-36
"""A sum of squares under this is "below floor": float32 squares vanish there. A ratio uses the floor instead of 0."""

Array = np.ndarray[tuple[int, ...], np.dtype[np.float32]]
Scope = Literal["model", "norm", "block", "sublayer"]
"""Of what: the whole model, a norm layer, a block, or another part of a block (attention, router)."""
Combine = Literal["mean", "sum", "max"]


@dataclass(frozen=True, slots=True)
class Statistic:
    """One row of the catalog. `scope` tells what kind of site it is taken at, `unit` is for people."""

    name: str
    scope: Scope
    unit: str
    help: str
    combine: Combine = "mean"
    of: tuple[str, ...] = ()
    """Derived only: the statistics it is computed from, in the order `formula` takes them."""
    formula: Callable[..., Array] | None = None
    exported: bool = True
    """Whether Prometheus and the page show it; additive forms that have a human form are not shown."""

    @property
    def metric(self) -> str:
        """The Prometheus name."""
        return f"stabmon_{self.name}"


def root(square: Array) -> Array:
    """From a mean square or a sum of squares to rms or norm."""
    return np.sqrt(square)


def ratio(square: Array, of_square: Array) -> Array:
    """sqrt(a/b) with both held at the floor, so that an underflow is never a ratio of 0 or a division by 0."""
    top, bottom = (np.maximum(x.astype(np.float64), FLOOR_SQ) for x in (square, of_square))
    with np.errstate(invalid="ignore"):  # Inf / Inf is not known
        return np.sqrt(top / bottom).astype(np.float32)


def quotient(top: Array, bottom: Array) -> Array:
    """a/b; NaN where b is 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(bottom == 0, np.float32(np.nan), top / bottom)
