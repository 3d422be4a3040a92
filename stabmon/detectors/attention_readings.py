"""What attention_blowup reads of every attention layer: how large its logits are, how sharp it is, and how fast."""

from __future__ import annotations

from math import isnan, log

import numpy as np

from stabmon.detectors.arrays import Bools, Floats, beside, logs_of
from stabmon.detectors.blowup_readings import Clock
from stabmon.detectors.forecast import Crossing, crossing
from stabmon.detectors.growth import power_trail, since_when
from stabmon.detectors.thresholds import attention as thresholds
from stabmon.detectors.trail import Trail
from stabmon.records import Snapshot

_READ = ("attention_logit_max", "attention_entropy", "attention_entropy_min")


class Together:
    """Of all layers on average, in which the noise of largest values cancels: over the last 40 steps S ~ t^p, and
    H ~ t^-q.
    """

    def __init__(self) -> None:
        self.exponent = float("nan")
        """p."""
        self.since = float("nan")
        """Step since when they sharpen faster than weights that drift make them; NaN: they do not."""
        self._trail = Trail(thresholds.TOGETHER_STEPS, thresholds.TOGETHER_SPACING)
        """Means of ln S and -ln H over the step."""

    def add(self, step: int, age: float, logs: Floats, entropies: Floats) -> None:
        """ln S and ln H, float[layer]; `age`: time in steps at the learning rate of now."""
        known = logs[np.isfinite(logs)]
        if len(known) < thresholds.TOGETHER_LAYERS:
            return
        self._trail.add(step, np.array([known.mean(), -entropies.mean()]))
        slopes = self._trail.slope()
        if slopes is not None:
            first, last = self._trail.span
            self._judge(first, slopes * (last - first), slopes * (age - (last - first) / 2))

    def _judge(self, first: float, grown: Floats, exponents: Floats) -> None:
        self.exponent = float(exponents[0])
        fast = exponents[0] > thresholds.TOGETHER_EXPONENT and exponents[1] > thresholds.TOGETHER_FALL
        far = grown[0] > log(thresholds.TOGETHER_GROWN) and grown[1] > log(thresholds.TOGETHER_FALLEN)
        began = first if isnan(self.since) else self.since
        self.since = began if fast and far else float("nan")


class Sharpening:
    """Of each layer: growth of S, its largest logit, as p = d ln S / d ln t, and what its entropy H does meanwhile."""

    def __init__(self, layers: int) -> None:
        self.logit = np.full(layers, np.nan)
        """S."""
        self.entropy = np.full(layers, np.nan)
        """H."""
        self.lowest = np.full(layers, np.nan)
        """H of the head that has the lowest."""
        self.exponent = np.full(layers, np.nan)
        """p."""
        self.since = np.full(layers, np.nan)
        """Step since when p > 3; NaN: it is not so."""
        self.before = np.full(layers, np.nan)
        """H at that step."""
        self.together = Together()
        self._first = np.full(layers, np.nan)
        self._long = power_trail()
        """ln S over ln t."""
        self._short = Trail(thresholds.FORECAST_STEPS, thresholds.FORECAST_SPACING)
        """ln S and ln H of all layers over the step."""

    def add(self, snapshot: Snapshot, clock: Clock) -> None:
        """A step at which attention was read, and the learning rate was not 0 all along."""
        logit, entropy, lowest = (
            np.where(np.isfinite(values), values.astype(np.float64), np.nan)
            for values in (beside(snapshot, name, len(self.logit)) for name in _READ)
        )
        known = np.isfinite(logit)
        self.logit = np.where(known, logit, self.logit)
        self.entropy = np.where(np.isfinite(entropy), entropy, self.entropy)
        self.lowest = np.where(np.isfinite(lowest), lowest, self.lowest)
        self._first = np.where(np.isfinite(self._first), self._first, logit)
        logs, entropies = logs_of(logit), logs_of(entropy)
        self._long.add(log(clock.now), logs)
        self._short.add(snapshot.step, np.concatenate((logs, entropies)))
        self.together.add(snapshot.step, clock.now / clock.pace, logs, entropies)
        slope = self._long.slope()
        if slope is not None and snapshot.step >= thresholds.FIRST_STEP:
            self._judge(snapshot.step, slope, logs)

    def _judge(self, step: int, slope: Floats, logs: Floats) -> None:
        known = np.isfinite(slope) & np.isfinite(logs)
        self.exponent = np.where(known, slope, self.exponent)
        grown = logs - np.fmin.reduce(self._long.values, axis=0) > log(thresholds.GROWN)
        fast = (self.exponent > thresholds.EXPONENT) & grown
        self.before = np.where(known & fast & np.isnan(self.since), self.entropy, self.before)
        self.since = since_when(self.since, fast, known, step)

    @property
    def rising(self) -> Bools:
        """Whether S has risen lately as far as the layers have together."""
        logs = self._short.values[:, : len(self.logit)]
        rises: Bools = logs[-1] - np.fmin.reduce(logs, axis=0) > log(thresholds.TOGETHER_GROWN)
        return rises

    @property
    def huge(self) -> Bools:
        """Whether S is beyond what halves can tell apart, and was not so from the start."""
        return (self.logit > thresholds.HUGE) & (self.logit > thresholds.GROWN * self._first)

    @property
    def sharp(self) -> Bools:
        """Whether H is low, and fell while S grew."""
        return (self.entropy < thresholds.SHARP) & (self.entropy * thresholds.FALLEN < self.before)

    def forecast(self, layer: int) -> Crossing | None:
        """When S reaches 1,000."""
        return crossing(*self._short.column(layer), log(thresholds.HUGE))

    def collapse(self, layer: int) -> Crossing | None:
        """When H falls to .1."""
        steps, values = self._short.column(len(self.logit) + layer)
        return crossing(steps, [-value for value in values], -log(thresholds.SHARP))
