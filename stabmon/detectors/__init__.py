"""Detectors judge snapshots. One file per failure; numpy only."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from stabmon.catalog import Array
from stabmon.detectors.attention_blowup import AttentionBlowup
from stabmon.detectors.context_stall import ContextStall
from stabmon.detectors.dead_layers import DeadLayers
from stabmon.detectors.dead_units import DeadUnits
from stabmon.detectors.diverged import Diverged
from stabmon.detectors.exploded import Exploded
from stabmon.detectors.flat import Flat
from stabmon.detectors.gradient_spike import GradientSpike
from stabmon.detectors.logit_drift import LogitDrift
from stabmon.detectors.loss_shift import LossShift
from stabmon.detectors.nonfinite import NonFinite
from stabmon.detectors.precision import Precision
from stabmon.detectors.rank_trouble import RankTrouble
from stabmon.detectors.residual_blowup import ResidualBlowup
from stabmon.detectors.spike import Spike
from stabmon.detectors.update_shock import UpdateShock
from stabmon.detectors.wiring import Wiring
from stabmon.records import Event, Finding, Snapshot


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


@runtime_checkable
class Informed(Protocol):
    """A detector, or its alarm, that wants to know of changes the loop made: no alert by the change itself."""

    def notice(self, event: Event) -> None:
        """Before the snapshot that the event comes with is judged."""
        ...


def default_detectors() -> list[Detector]:
    """A fresh one of each, worst failure first."""
    return [
        NonFinite(),
        Exploded(),
        Diverged(),
        LossShift(),
        ContextStall(),
        ResidualBlowup(),
        AttentionBlowup(),
        UpdateShock(),
        GradientSpike(),
        DeadLayers(),
        DeadUnits(),
        Precision(),
        LogitDrift(),
        RankTrouble(),
        Wiring(),
        Flat(),
        Spike(),
    ]


def loss_detectors() -> list[Detector]:
    """A fresh one of each that needs a recorded loss alone (and its gradient norm and learning rate, where known),
    worst failure first.
    """
    return [NonFinite(), Exploded(), Diverged(), Flat(), Spike()]
