"""The output's logits drift away from 0: the softmax does not see a shift of all, but the number format does."""

from __future__ import annotations

from math import exp, isfinite, log, nan, sqrt

import numpy as np

from stabmon.catalog import Array
from stabmon.detectors import words
from stabmon.detectors.arrays import Floats
from stabmon.detectors.thresholds import logits as thresholds
from stabmon.detectors.trail import Trail
from stabmon.records import Finding, Snapshot


class LogitDrift:
    """Warns of |log Z| that has grown steadily by half over the last half of the run, to a size at which bfloat16
    rounds losses by .1 nats and more. log Z = ln sum exp(logits); its rms over tokens is judged.

    Score: the weakest of size, growth and steadiness, in units of what alerts.
    """

    name = "logit_drift"
    needs: tuple[str, ...] = ("log_z_msq", "log_z", "logit_max", "logit_mean")

    def __init__(self) -> None:
        self._trail = Trail(log(thresholds.WINDOW), log(thresholds.SPACING))
        """rms log Z, log Z, largest and mean logit over ln step."""
        self._score = 0.0
        self._since = 0

    def score(self, snapshot: Snapshot) -> Array:
        """float32[1]."""
        squares = snapshot["log_z_msq"]
        if not squares.size:
            return squares  # nearly every run: level light
        square = float(squares[0])
        if isfinite(square) and snapshot.step > 0:
            rest = [value if isfinite(value := snapshot.scalar(name)) else nan for name in self.needs[1:]]
            self._trail.add(log(snapshot.step), np.array([sqrt(max(square, 0.0)), *rest]))
            before = self._score
            self._score = self._judge() if snapshot.step >= thresholds.FIRST_STEP else 0.0
            if self._score >= 1 > before:
                self._since = round(exp(self._trail.places[0]))
        return np.full(squares.size, self._score, np.float32)

    def _judge(self) -> float:
        places, levels = self._trail.places, self._trail.values[:, 0]
        size = float(np.median(levels[-3:]))
        if size < thresholds.LEVEL:
            return size / thresholds.LEVEL
        half = places[-1] - places[0] >= log(thresholds.WINDOW) - 2 * log(thresholds.SPACING)
        if not half and exp(places[-1]) - exp(places[0]) < thresholds.LONG_STEPS:
            return 0.0
        grown = _fitted_growth(places, levels) / log(thresholds.GROWTH)
        return max(0.0, min(size / thresholds.LEVEL, grown, _kendall(levels) / thresholds.STEADY))

    def explain(self, site: int) -> Finding:
        """How large log Z is, how fast it grows, and whether all logits move together."""
        rms_then, log_z_then, largest_then, mean_then = self._trail.values[0]
        rms, log_z, largest, mean = self._trail.last
        before, now, step = words.whole(rms_then), words.whole(rms), words.bfloat16_step(rms)
        moved, shifted = log_z - log_z_then, mean - mean_then
        known = isfinite(largest_then + largest)
        ends = f" (the largest from {words.whole(largest_then)} to {words.whole(largest)})" if known else ""
        together = isfinite(shifted) and abs(shifted) > thresholds.TOGETHER * abs(moved) and shifted * moved > 0
        how = (
            f"All logits move together (their mean by {shifted:+.0f}): the softmax does not see it"
            if together
            else f"The logits spread{ends}: the head grows"
        )
        values = {
            "log_z_rms": rms,
            "log_z_rms_at_half": rms_then,
            "log_z": log_z,
            "logit_max": largest,
            "logit_mean": mean,
            "bfloat16_spacing": step,
        }
        other = "a head that grows" if together else "a shift of all logits"
        ruled_out = f"{other}: mean logit {mean_then:.1f} -> {mean:.1f}, log Z {log_z_then:.1f} -> {log_z:.1f}"
        return Finding(
            severity="warning",
            action=f"has output logits that drift: |log Z| grew from {before} to {now} nats since step "
            f"{self._since}. Add a z-loss; nothing is lost in float32 yet, in bfloat16 the loss is off by up to "
            f"{step / 2:.2g} nats",
            cause=f"{how}. At {now} neighbouring bfloat16 numbers are {step:.2g} nats apart.",
            remedies=(
                "Add 1e-4 log^2 Z to the loss (z-loss, PaLM), from here on.",
                "Compute the logits and the loss in float32.",
                "Put weight decay on the output head, or lower its learning rate.",
            ),
            evidence=words.known(values),
            since=self._since,
            ruled_out=(ruled_out,) if isfinite(shifted + moved) else (),
        )


def _fitted_growth(places: Floats, levels: Floats) -> float:
    """ln(last / first) of the straight line through ln level."""
    slope = np.polyfit(places, np.log(levels), 1)[0] if (levels > 0).all() else 0.0
    return float(slope * (places[-1] - places[0]))


def _kendall(levels: Floats) -> float:
    """Share of pairs that rise less the share that falls."""
    later, earlier = np.triu_indices(len(levels), 1)[::-1]
    return float(np.sign(levels[later] - levels[earlier]).mean())
