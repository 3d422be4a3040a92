"""Detectors judge snapshots. One file per failure; numpy only."""

from __future__ import annotations

from typing import Protocol

from stabmon.catalog import Array
from stabmon.detectors.context_stall import ContextStall
from stabmon.detectors.nonfinite import NonFinite
from stabmon.detectors.residual_blowup import ResidualBlowup
from stabmon.records import Finding, Snapshot


class Detector(Protocol):
    """One failure, watched at all sites of `needs[0]` at once.

    A missing value (NaN) leaves its state alone; Inf is seen before any comparison; outliers are not learnt from.
    """

    name: str
    needs: tuple[str, ...]
    """Statistics it reads; the first one's sites are what `score` is aligned with."""

    def score(self, snapshot: Snapshot) -> Array:
        """How far past its alert line each site is, float32[site]; >= 1 alerts, 0 while warming up or not read."""
        ...

    def explain(self, site: int) -> Finding:
        """Evidence, cause and remedies of the site at that index. Only called while its score is >= 1."""
        ...


def default_detectors() -> list[Detector]:
    """A fresh one of each, worst failure first."""
    return [NonFinite(), ContextStall(), ResidualBlowup()]
