"""The residual stream growing faster than training explains: first norm inputs, then the update, then the loss.

A large norm input is no fault (one of 8,190 trains fine); sustained super-polynomial growth is. Weights that drift
in one direction give n ~ t^2 and a random walk n ~ t, so p = d ln n / d ln t stays at 2.3 or less in healthy runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, isfinite, log, nan

import numpy as np

from stabmon.catalog import Array
from stabmon.detectors import words
from stabmon.detectors.blowup_readings import Clock, Growth, Shocks, on_stream
from stabmon.detectors.headroom import Headroom
from stabmon.detectors.thresholds import blowup as thresholds
from stabmon.detectors.thresholds import precision
from stabmon.records import Finding, Snapshot


@dataclass(frozen=True, slots=True)
class _Then:
    """What was read when the growth that lasts began; NaN: not known."""

    rate: float
    """The learning rate."""
    share: float
    """The context share."""


class ResidualBlowup:
    """Warns of a norm on the residual stream whose input grows as step^p with p > 3 for long; critical once updates
    overshoot as well, it has grown a hundredfold, or float16 is near its end. Says when, as far as the trend tells.

    Score: p / 3.
    """

    name = "residual_blowup"
    needs: tuple[str, ...] = (
        "norm_input_msq",
        "learning_rate",
        "trust_ratio",
        "output_change_kl",
        "precision_headroom",
        "activation_max",
        "context_share",
    )

    def __init__(self) -> None:
        self._clock, self._shocks, self._headroom = Clock(), Shocks(), Headroom()
        self._growth = Growth(0)
        self._on_stream = on_stream(())
        self._scores: Array = np.zeros(0, np.float32)
        self._step = 0
        self._share = nan
        self._then: _Then | None = None
        """None: nothing grows."""

    def score(self, snapshot: Snapshot) -> Array:
        """float32[norm]."""
        values = snapshot["norm_input_msq"]
        if len(values) != len(self._scores):
            self._growth = Growth(len(values))
            self._on_stream = on_stream(snapshot.layout.sites_of("norm_input_msq"))
            self._scores = np.zeros(len(values), np.float32)
        self._clock.tick(snapshot)
        self._shocks.read(snapshot)
        if snapshot.layers_read and np.isfinite(values).any() and self._clock.now > 0 and self._clock.pace > 0:
            self._judge(snapshot, values)
        return self._scores

    def _judge(self, snapshot: Snapshot, values: Array) -> None:
        self._step = snapshot.step
        self._growth.add(snapshot.step, self._clock, values)
        self._headroom.read(snapshot)
        share = snapshot.scalar("context_share")
        self._share = share if isfinite(share) else self._share
        if not np.isfinite(self._growth.since[self._on_stream]).any():
            self._then = None
        elif self._then is None:
            self._then = _Then(self._clock.rate, self._share)
        exponent = self._growth.exponent
        score = np.where(np.isnan(exponent), 0, exponent) / thresholds.EXPONENT
        lasting = self._on_stream & (self._step - self._growth.since >= thresholds.HOLD_STEPS)
        if lasting.any() and not (self._spreads() and self._alive()):
            lasting[:] = False
        self._scores = np.where(lasting, np.maximum(score, 1), np.clip(score, 0, 0.99)).astype(np.float32)

    def _spreads(self) -> bool:
        """Whether the largest input on the stream grows so too: a low layer may, and be lost in what others add."""
        return bool(np.isfinite(self._growth.since[self._largest]))

    @property
    def _largest(self) -> int:
        return int(np.argmax(np.where(self._on_stream, np.nan_to_num(self._growth.logs, nan=-np.inf), -np.inf)))

    def _alive(self) -> bool:
        """False in a stall, and where there is nothing to learn: another detector tells of that. False too on a
        plateau, until the stream has grown by more than it swells there.
        """
        share = self._then.share if self._then else nan
        swells = share < thresholds.PLATEAU and not self._growth.risen(self._largest) > thresholds.SWELLS
        return not (share < thresholds.COLLAPSED or swells)

    def explain(self, site: int) -> Finding:
        """How fast that norm's input grows, what updates do, and when it will break."""
        since = int(self._growth.since[site])
        critical = self._overshoots(since) or self._ends or self._growth.risen(site) > thresholds.RISEN
        return Finding(
            severity="critical" if critical else "warning",
            action=self._action(site, since),
            cause=self._cause(site),
            remedies=self._remedies(since),
            evidence=self._evidence(site),
            since=since,
            ruled_out=self._ruled_out(),
        )

    def _overshoots(self, since: int) -> bool:
        return self._shocks.overshot >= since

    @property
    def _ends(self) -> bool:
        """Whether float16 is near its end."""
        return self._headroom.nats < precision.HEADROOM

    @property
    def _collapsed(self) -> bool:
        """Whether it has broken already: it had told positions apart when the growth began, and does so no more."""
        return self._then is not None and self._share < thresholds.COLLAPSED and self._then.share > thresholds.ALIVE

    @property
    def _ramp(self) -> float:
        """By which the learning rate has risen since the growth began; NaN: not known."""
        return self._clock.rise_from(self._then.rate) if self._then else nan

    def _action(self, site: int, since: int) -> str:
        slower = words.slower(self._clock.rate, 10)
        grows = f"a norm's input grows as step^{self._growth.exponent[site]:.1f} since step {since}"
        if self._collapsed:
            return (
                f"has blown up: {grows}, and all tokens get the same answer by now. Go back to a checkpoint before "
                f"step {since}, and go on with {slower}; it does not come back by itself"
            )
        return f"is blowing up: {grows}. Cut to {slower} now, or go back to before step {since}; {self._cost(since)}"

    def _cost(self, since: int) -> str:
        overflow = self._headroom.forecast()
        if self._overshoots(since):
            return "updates overshoot already: few steps are left"
        if self._ends or overflow:
            return f"float16 overflows {overflow or 'soon'}"
        shock = self._shocks.forecast()
        return f"updates overshoot {shock}" if shock else "the loss breaks within some 100 steps"

    def _cause(self, site: int) -> str:
        law = "exponentially" if self._growth.exponential(site) else "as a power of the step"
        why = f"; the learning rate has risen x{self._ramp:.1f} meanwhile" if self._ramp > thresholds.JUMP else ""
        return (
            f"The residual stream grows {law}, faster than any steady drift of the weights (step^2) explains{why}; the "
            "final norm scales it away, so neither the loss nor the gradient shows it at first."
        )

    def _remedies(self, since: int) -> tuple[str, ...]:
        slower = words.slower(self._clock.rate, 10)
        ramp = ", and end the ramp that it is on" if self._ramp > thresholds.JUMP else ""
        untold = self._growth.overflow(self._largest) if np.isnan(self._headroom.largest) else None
        return (
            f"Cut the learning rate x10 to {slower}{ramp}.",
            f"Roll back to a checkpoint before step {since}, and go on at a third of the learning rate.",
            "Put weight decay on the matrices that write into the stream, or scale them by 1/sqrt(2 x layers).",
            "Use a norm on both sides of each sub-layer (Peri-LN).",
            *([f"If the stream is float16: it overflows {untold}, by its rms; use bfloat16."] if untold else []),
        )

    def _evidence(self, site: int) -> dict[str, float]:
        growth = self._growth
        values = {
            "norm_input_msq": exp(growth.logs[site]),
            "growth_exponent": growth.exponent[site],
            "times_since_it_began": growth.risen(site),
            "doubling_steps": log(2) / growth.rate[site] if growth.rate[site] > 0 else nan,
            "growth_per_norm": growth.depth_factor(self._on_stream),
            **self._shocks.latest,
            "precision_headroom": self._headroom.nats,
            "activation_max": self._headroom.largest,
            "context_share": self._share,
            "learning_rate": self._clock.rate,
        }
        return words.known(values)

    def _ruled_out(self) -> tuple[str, ...]:
        trust, change = (self._shocks.latest.get(name) for name in ("trust_ratio", "output_change_kl"))
        return words.that_hold(
            (
                (self._ramp <= thresholds.JUMP, f"a rising learning rate: x{self._ramp:.2f} since it began"),
                (
                    change is not None and change <= thresholds.SHOCK,
                    f"updates that overshoot, so far: {change or 0:.2g} nats a token",
                ),
                (
                    trust is not None and trust >= thresholds.TRUST,
                    f"too long a step, so far: trust ratio {trust or 0:.2f}",
                ),
                (self._share >= thresholds.COLLAPSED, f"a collapse, so far: context share {self._share:.2g}"),
                (
                    self._headroom.nats >= precision.HEADROOM,
                    f"overflow, so far: x{exp(min(self._headroom.nats, 99)):.0f} left",
                ),
            )
        )
