"""Attention that sharpens until each query looks at one key: first its logits, then its entropy, last the loss.

A softmax that is saturated has no gradient, so nothing brings it back. Large logits alone are no fault (75 trains
fine at a hot learning rate, and so does an entropy of .05); growth that no drift of the weights explains is.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite, nan

import numpy as np

from stabmon.catalog import Array
from stabmon.detectors import words
from stabmon.detectors.arrays import Bools
from stabmon.detectors.attention_readings import Sharpening
from stabmon.detectors.blowup_readings import Clock
from stabmon.detectors.level import Level, log_loss
from stabmon.detectors.thresholds import attention as thresholds
from stabmon.detectors.thresholds import blowup
from stabmon.records import Finding, Snapshot


@dataclass(frozen=True, slots=True)
class _Then:
    """What was read when the growth began; NaN: not known."""

    rate: float
    """The learning rate."""
    stream: float
    """The largest norm input."""


class AttentionBlowup:
    """Warns of a layer whose largest logit grows as step^p with p > 3 for long and is over 50, or whose entropy has
    fallen under .1 by that, and long before, where on average the layers' logits grow and their entropy falls faster
    than drifting weights explain, though the loss does not fall; critical where a layer is over both lines and the loss
    begins to suffer (or is not known). Warns of a logit over 1,000 in any case, if it is not one that the run began
    with. Silent at levels at which attention is not read.

    Score: p / 3 where it is large or sharp, else under 1.
    """

    name = "attention_blowup"
    needs: tuple[str, ...] = (
        "attention_logit_max",
        "attention_entropy",
        "attention_entropy_min",
        "loss",
        "learning_rate",
        "norm_input_msq",
        "trust_ratio",
    )

    def __init__(self) -> None:
        self._clock, self._loss = Clock(), Level()
        self._layers = Sharpening(0)
        self._scores: Array = np.zeros(0, np.float32)
        self._step = 0
        self._stream = self._trust = nan
        """Largest norm input, and trust ratio: the latest of those at which something grew."""
        self._then: _Then | None = None
        """None: nothing grows."""

    def score(self, snapshot: Snapshot) -> Array:
        """float32[attention layer]."""
        values = snapshot["attention_logit_max"]
        if not values.size:
            return values  # nearly every run: level light
        if len(values) != len(self._scores):
            self._layers = Sharpening(len(values))
            self._scores = np.zeros(len(values), np.float32)
        self._clock.tick(snapshot)
        if isfinite(z := log_loss(snapshot)):
            self._loss.push(z)
        if snapshot.layers_read and np.isfinite(values).any() and self._clock.now > 0 and self._clock.pace > 0:
            self._judge(snapshot)
        return self._scores

    def _judge(self, snapshot: Snapshot) -> None:
        self._step = snapshot.step
        layers = self._layers
        layers.add(snapshot, self._clock)
        self._read_others(snapshot)
        score = np.fmax(layers.exponent, 0) / thresholds.EXPONENT
        alerting = layers.huge | (self._lasting & (self._large | layers.sharp)) | self._all_together
        self._scores = np.where(alerting, np.maximum(score, 1), np.minimum(score, 0.99)).astype(np.float32)

    def _read_others(self, snapshot: Snapshot) -> None:
        if np.isnan(self._layers.since).all() and np.isnan(self._layers.together.since):
            self._then = None
            return  # nearly every reading
        stream, trust = snapshot["norm_input_msq"], snapshot.scalar("trust_ratio")
        if np.isfinite(stream).any():
            self._stream = float(stream[np.isfinite(stream)].max())
        self._trust = trust if isfinite(trust) else self._trust
        if self._then is None:
            self._then = _Then(self._clock.rate, self._stream)

    @property
    def _lasting(self) -> Bools:
        hold = min(thresholds.HOLD_STEPS, thresholds.HOLD_SHARE * self._step)
        lasting: Bools = self._step - self._layers.since >= hold
        return lasting

    @property
    def _all_together(self) -> Bools:
        """The layers that grow, where all do on average and learn nothing by it."""
        layers = self._layers
        none = self._step < thresholds.FIRST_STEP or np.isnan(layers.together.since) or self._learns
        return np.zeros(len(layers.logit), bool) if none else layers.rising

    @property
    def _learns(self) -> bool:
        """Whether the loss falls so fast that sharper attention is what is learnt; true too where no loss is read."""
        return not self._rises >= -thresholds.LEARNS

    @property
    def _large(self) -> Bools:
        large: Bools = self._layers.logit > thresholds.LARGE
        return large

    @property
    def _rises(self) -> float:
        """ln(loss / its best level)."""
        return self._loss.recent.median - self._loss.best if self._loss.recent.full else nan

    @property
    def _suffers(self) -> bool:
        """Whether the loss has begun to rise; true too where no loss is read."""
        return not self._rises <= max(thresholds.SUFFERS, thresholds.SUFFERS_NOISE * self._loss.noise)

    def explain(self, site: int) -> Finding:
        """How large the logits are, how sharp the layer is, and when it is too late."""
        layers = self._layers
        alone, together = bool(self._lasting[site]), bool(self._all_together[site])
        growing = alone or together
        since = int(layers.since[site] if alone else layers.together.since) if growing else self._step
        critical = growing and bool(self._large[site] and layers.sharp[site]) and self._suffers
        return Finding(
            severity="critical" if critical else "warning",
            action=self._action(site, since, growing),
            cause=self._cause(growing),
            remedies=self._remedies(since),
            evidence=self._evidence(site),
            since=since,
            ruled_out=self._ruled_out(site),
        )

    def _action(self, site: int, since: int, growing: bool) -> str:
        logit, slower = self._layers.logit[site], words.slower(self._clock.rate, 3)
        if not growing:
            spacing = words.whole(words.bfloat16_step(logit))
            return (
                f"has attention logits of {words.whole(logit)}: bfloat16 rounds them to {spacing} nats. Limit them "
                "(QK-norm or QK-Clip); such a layer looks at one key, and by chance at which"
            )
        return (
            f"is losing its attention: logits grow as step^{self._power(site):.1f} since step {since}, to "
            f"{words.whole(logit)} by now. Limit them (QK-Clip), or go back to before step {since} with {slower}; "
            f"{self._cost(site)}"
        )

    def _power(self, site: int) -> float:
        """p of the layer, or of all while that is too young to be fast."""
        layers = self._layers
        return float(layers.exponent[site] if self._lasting[site] else layers.together.exponent)

    def _cost(self, site: int) -> str:
        layers = self._layers
        if layers.sharp[site] and self._suffers and isfinite(self._rises):
            return f"the loss is {np.expm1(self._rises):.0%} up already, and it does not come back by itself"
        if layers.sharp[site]:
            return f"each query looks at hardly more than one key already (entropy {layers.entropy[site]:.2g})"
        collapse, huge = layers.collapse(site), layers.forecast(site)
        if collapse:
            return f"its entropy falls to .1 {collapse}"
        return f"they reach 1,000 {huge}" if huge else "the loss follows within some 100 steps"

    def _cause(self, growing: bool) -> str:
        why = f"; the learning rate has risen x{self._ramp:.1f} meanwhile" if self._ramp > blowup.JUMP else ""
        how = (
            f"Queries times keys grow faster than any steady drift of their weights (step^2) explains{why}"
            if growing
            else "Queries and keys have grown without a limit"
        )
        return (
            f"{how}; a softmax over such logits is saturated and passes no gradient, so nothing brings it back, and "
            "the loss shows it late."
        )

    def _remedies(self, since: int) -> tuple[str, ...]:
        slower = words.slower(self._clock.rate, 3)
        ramp = ", and end the ramp that it is on" if self._ramp > blowup.JUMP else ""
        return (
            f"QK-Clip: after each step multiply the query and key weights of every head whose largest logit S is over "
            f"{thresholds.CLIP:.0f} by sqrt({thresholds.CLIP:.0f} / S).",
            f"Go back to a checkpoint from before step {since}, and go on with {slower}{ramp}.",
            "Normalise queries and keys (QK-norm): logits are then sqrt(head width) x gain^2 at most.",
            "sigma-Reparam, or weight decay, on the query and key matrices.",
        )

    @property
    def _ramp(self) -> float:
        """By which the learning rate has risen since the growth began; NaN: not known."""
        return self._clock.rise_from(self._then.rate) if self._then else nan

    def _evidence(self, site: int) -> dict[str, float]:
        layers = self._layers
        values = {
            "attention_logit_max": layers.logit[site],
            "growth_exponent": layers.exponent[site],
            "growth_exponent_of_all": layers.together.exponent,
            "attention_entropy": layers.entropy[site],
            "entropy_before": layers.before[site],
            "attention_entropy_min": layers.lowest[site],
            "median_of_layers": float(np.nanmedian(layers.logit)),
            "loss_rise": self._rises,
            "trust_ratio": self._trust,
            "learning_rate": self._clock.rate,
        }
        return words.known(values)

    def _ruled_out(self, site: int) -> tuple[str, ...]:
        layers = self._layers
        entropy, before = layers.entropy[site], layers.before[site]
        then = self._then.stream if self._then else nan
        stream = self._stream / then if then > 0 else nan
        return words.that_hold(
            (
                (
                    entropy * thresholds.FALLEN < before,
                    f"one odd token or head: the mean entropy fell from {before:.2g} to {entropy:.2g}",
                ),
                (not self._suffers, f"harm to the loss, so far: {np.expm1(self._rises):+.1%} against its best"),
                (self._ramp <= blowup.JUMP, f"a rising learning rate: x{self._ramp:.2f} since it began"),
                (
                    stream < thresholds.GROWN,
                    f"a residual stream that grows: its largest norm input is x{stream:.1f} of then",
                ),
                (self._trust >= blowup.TRUST, f"updates that overshoot, so far: trust ratio {self._trust:.2f}"),
            )
        )
