"""The number format runs out: float16 near its largest number, branches or updates that rounding swallows."""

from __future__ import annotations

from collections import deque
from math import exp

import numpy as np

from stabmon.catalog import FLOOR_SQ, Array
from stabmon.detectors import words
from stabmon.detectors.arrays import beside
from stabmon.detectors.headroom import Headroom
from stabmon.detectors.thresholds import precision as thresholds
from stabmon.records import Finding, Severity, Site, Snapshot


class _Lasting:
    """A share that counts once it has been over its limit for some readings in a row."""

    def __init__(self, limit: float, readings: int) -> None:
        self._limit = limit
        self._recent: deque[float] = deque(maxlen=readings)
        self.since = 0
        self.share = float("nan")
        self.site: Site | None = None

    def read(self, step: int, share: float, site: Site) -> None:
        if not self.over:
            self.since = step
        self.share, self.site = share, site
        self._recent.append(share)

    @property
    def over(self) -> bool:
        """Whether the last reading is."""
        return bool(self._recent) and self._recent[-1] >= self._limit

    @property
    def score(self) -> float:
        """1 or more: for long enough."""
        return min(self._recent) / self._limit if len(self._recent) == self._recent.maxlen else 0.0


class Precision:
    """Warns where float16 has less than two doublings left (critical: overflow within 50 steps), where bfloat16
    swallows a fifth of what sub-layers add, or nine tenths of the updates of weights kept in it. float32 is silent.

    Score: of the fault that is furthest past its limit. Its finding names the worst site.
    """

    name = "precision"
    needs: tuple[str, ...] = (
        "norm_input_msq",
        "precision_headroom",
        "activation_max",
        "swamped_share",
        "branch_ratio",
        "lost_update_ratio",
        "intended_update_norm",
        "update_norm",
    )

    def __init__(self) -> None:
        self._headroom = Headroom()
        self._overflow = _Lasting(1.0, thresholds.HEADROOM_READINGS)
        self._swamped = _Lasting(thresholds.SWAMPED, thresholds.SWAMPED_READINGS)
        self._lost = _Lasting(thresholds.LOST, thresholds.LOST_READINGS)
        self._moved = float("nan")
        self._branch = float("nan")
        self._scores: Array = np.zeros(0, np.float32)

    def score(self, snapshot: Snapshot) -> Array:
        """float32[norm]: it judges the whole model."""
        lengths = snapshot["norm_input_msq"]
        read = snapshot.layers_read and not np.isnan(lengths).all()
        if read:
            self._read_range(snapshot)
            self._read_branches(snapshot)
            self._read_updates(snapshot)
        if read or len(lengths) != len(self._scores):
            worst = max(self._overflow.score, self._swamped.score, self._lost.score)
            self._scores = np.full(len(lengths), worst, np.float32)
        return self._scores

    def _read_range(self, snapshot: Snapshot) -> None:
        if self._headroom.read(snapshot) and self._headroom.site is not None:
            share = thresholds.HEADROOM / max(self._headroom.nats, 0.1)
            self._overflow.read(snapshot.step, share, self._headroom.site)

    def _read_branches(self, snapshot: Snapshot) -> None:
        shares = snapshot["swamped_share"]
        if snapshot.step < thresholds.SWAMPED_STEP or not np.isfinite(shares).any():
            return
        shares = np.where(np.isfinite(shares), shares, np.nan)
        worst = int(np.nanargmax(shares))
        site = snapshot.layout.sites_of("swamped_share")[worst]
        ratios = snapshot["branch_ratio"]
        self._branch = float(ratios[worst]) if ratios.size == shares.size else float("nan")
        self._swamped.read(snapshot.step, float(np.nanmean(shares)), site)

    def _read_updates(self, snapshot: Snapshot) -> None:
        lost = snapshot["lost_update_sq"].astype(np.float64)
        if np.isnan(lost).all():
            return
        intended, moved = (
            beside(snapshot, name, len(lost)).astype(np.float64) for name in ("intended_update_sq", "update_sq")
        )
        known = (lost >= 0) & (moved >= 0) & (intended > FLOOR_SQ) & np.isfinite(lost + moved + intended)
        if not known.any():
            return
        self._moved = float(np.sqrt(moved[known].sum() / intended[known].sum()))
        share = float(np.sqrt(lost[known].sum() / intended[known].sum()))
        ratios = np.where(known, lost / np.maximum(intended, FLOOR_SQ), -np.inf)
        site = snapshot.layout.sites_of("lost_update_sq")[int(np.argmax(ratios))]
        # Stochastic rounding loses as much in norm, and nothing on average: there the weights move further than meant.
        self._lost.read(snapshot.step, share if self._moved < thresholds.SHRUNK else 0.0, site)

    def explain(self, site: int) -> Finding:
        """What runs out, where, and what of the rest has room."""
        tells = {self._overflow: self._of_overflow, self._lost: self._of_lost, self._swamped: self._of_swamped}
        worst = max(tells, key=lambda fault: (fault.score >= 1, fault is self._overflow, fault.score))
        return tells[worst]()

    def _of_overflow(self) -> Finding:
        forecast = self._headroom.forecast()
        soon = forecast is not None and forecast.latest <= thresholds.OVERFLOW_STEPS
        left = exp(self._headroom.nats)
        growing = f"it overflows {forecast}" if forecast else "it is not growing steadily, so there is no forecast"
        return self._finding(
            self._overflow,
            "critical" if soon else "warning",
            f"is near the end of float16: a norm's input reaches {self._headroom.largest:.0f} of 65,504 (x{left:.1f} "
            f"left). Go on in bfloat16; {growing}",
            "Largest values grow with the residual stream; float16 ends at 65,504, and what is larger becomes Inf.",
            (
                "Write a checkpoint, and go on in bfloat16 (its range is that of float32).",
                "Keep the residual stream and the norms in float32 (autocast does where the embedding is float32).",
                "Stop the growth: cut the learning rate x10, put weight decay on what writes into the stream.",
            ),
        )

    def _of_lost(self) -> Finding:
        return self._finding(
            self._lost,
            "warning",
            f"is losing {self._lost.share:.0%} of its updates to rounding: weights kept in half precision move only by "
            "their last digit. Keep float32 copies of the weights; every step until then is mostly lost",
            f"An update smaller than half the distance of two neighbouring numbers is rounded away: weights moved by "
            f"{self._moved:.2f} of what was meant.",
            (
                "Keep the weights in float32 and compute under autocast to bfloat16.",
                "Or round stochastically, or compensate (Kahan), as optimi and torchao do.",
                "A larger learning rate loses less, if training bears it.",
            ),
        )

    def _of_swamped(self) -> Finding:
        return self._finding(
            self._swamped,
            "warning",
            f"is losing what its layers add: {self._swamped.share:.0%} of it is too small for the residual stream's "
            "last digit. Keep the stream in float32; the layers that are lost learn nothing",
            "The stream has outgrown its branches: in bfloat16 what is under 1/512 of it vanishes in the sum.",
            (
                "Keep the residual stream in float32.",
                "Lower the stream: weight decay on embedding and on what writes into the stream, or LayerNorm scaling.",
                "Normalise after each sub-layer too (Peri-LN).",
            ),
        )

    def _finding(
        self, fault: _Lasting, severity: Severity, action: str, cause: str, remedies: tuple[str, ...]
    ) -> Finding:
        values = {
            "precision_headroom": self._headroom.nats,
            "activation_max": self._headroom.largest,
            "mean_swamped_share": self._swamped.share,
            "branch_ratio": self._branch if fault is self._swamped else float("nan"),
            "lost_update_share": self._lost.share,
            "moved_over_intended": self._moved,
        }
        ruled_out = self._ruled_out(fault)
        return Finding(severity, action, cause, remedies, words.known(values), fault.since, fault.site, ruled_out)

    def _ruled_out(self, fault: _Lasting) -> tuple[str, ...]:
        share, nats = self._swamped.share, self._headroom.nats
        others = (
            (self._overflow, nats >= thresholds.HEADROOM, f"overflow: x{exp(min(nats, 20)):.0f} left"),
            (self._swamped, share < thresholds.SWAMPED, f"a stream that swallows branches: {share:.1%} of them"),
            (self._lost, self._lost.share < thresholds.LOST, f"updates lost to rounding: {self._lost.share:.0%}"),
        )
        return words.that_hold((holds, phrase) for other, holds, phrase in others if other is not fault)
