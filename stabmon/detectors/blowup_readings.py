"""What residual_blowup reads: time, how fast every norm's input grows, and what updates do meanwhile."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from math import isfinite, log, nan

import numpy as np

from stabmon.catalog import Array
from stabmon.detectors.arrays import Bools, Floats, logs_of
from stabmon.detectors.forecast import REACH, SPACING, Crossing, crossing
from stabmon.detectors.growth import power_trail, since_when
from stabmon.detectors.thresholds import blowup as thresholds
from stabmon.detectors.thresholds.precision import FLOAT16
from stabmon.detectors.trail import Trail
from stabmon.records import Site, Snapshot

_STREAM = ("", "pre", "post", "parallel", "final")


def on_stream(sites: Sequence[Site]) -> Bools:
    """Which norms see the residual stream. One after a branch sees the branch and divides its growth away before it is
    added; in a sandwich, which has one before and one after, that is every second one of a layer, in forward order.
    """
    seen: dict[int | None, int] = {}
    found = []
    for site in sites:
        turn = seen[site.layer] = seen.get(site.layer, -1) + (site.placement == "sandwich")
        found.append(site.placement in _STREAM or (site.placement == "sandwich" and turn % 2 == 0))
    return np.array(found, dtype=bool)


class Clock:
    """Time that growth is measured in: steps, weighted by the learning rate as far as its path is a known one.

    n follows the way that weights have gone, so a warm-up alone would give n ~ t^4, and a jump of the rate any power.
    A ramp after the warm-up does not count: one that blows the stream up is a fault.
    """

    STEADY = 5

    def __init__(self) -> None:
        self.now = 0.0
        self.pace = 0.0
        """What one step adds."""
        self.rate = nan
        """The learning rate that was read last; NaN: none was."""
        self._top = 0.0
        """Highest rate of the warm-up."""
        self._steady = 0
        self._step = 0

    def tick(self, snapshot: Snapshot) -> None:
        rate = snapshot.scalar("learning_rate")
        if isfinite(rate):
            self._read(rate)
        elif not snapshot["learning_rate"].size:
            self.pace = 1.0  # nobody gives one: plain steps
        if self.pace > 0:
            self.now += (snapshot.step - self._step) * self.pace
            self._step = snapshot.step

    def rise_from(self, rate: float) -> float:
        """By which the learning rate has risen from that one; NaN where it was 0 or is not known."""
        return self.rate / rate if rate > 0 else nan

    def _read(self, rate: float) -> None:
        if self._steady < self.STEADY:
            self._steady = 0 if rate > self._top else self._steady + 1
            self._top = self.pace = max(self._top, rate)
        elif rate > thresholds.JUMP * self.rate:
            self.pace = max(self._top, rate)
        elif rate * thresholds.JUMP < self.rate:
            self.pace = min(self.pace, max(self._top, rate))
        self.rate = rate


class Growth:
    """Of each norm's input: p = d ln n / d ln t over the last 40 % of the run, or over the last 40 steps if that grows
    by 1 % a step or more; and since when it is too fast.
    """

    def __init__(self, sites: int) -> None:
        self.exponent = np.full(sites, np.nan)
        self.rate = np.full(sites, np.nan)
        """d ln n / d step over the last 40 steps."""
        self.since = np.full(sites, np.nan)
        """Step since when p > 3, and n has grown enough to matter; NaN: it is not so."""
        self._first = np.full(sites, np.nan)
        self._began = np.full(sites, np.nan)
        self.long = power_trail()
        """ln n over ln t."""
        self._short = Trail(thresholds.RATE_STEPS, thresholds.RATE_SPACING)
        self._range = Trail(REACH, SPACING)

    @property
    def logs(self) -> Floats:
        """ln n, float[sites]."""
        return self.long.last

    def add(self, step: int, clock: Clock, values: Array) -> None:
        logs = logs_of(values)
        if step <= thresholds.FIRST_STEP:
            self._first = np.where(np.isnan(self._first), logs, self._first)
        self.long.add(log(clock.now), logs)
        self._short.add(step, logs)
        self._range.add(step, logs)
        long, short = self.long.slope(), self._short.slope()
        if step >= thresholds.FIRST_STEP and long is not None and short is not None:
            self._judge(step, long, short, clock.now / clock.pace)

    def _judge(self, step: int, long: Floats, short: Floats, steps: float) -> None:
        recent = thresholds.RATE_STEPS
        brief = recent < steps * (1 - 1 / thresholds.WINDOW)
        sudden = np.where((short > thresholds.RATE) & brief, short * (steps - recent / 2), -np.inf)
        exponent = np.fmax(long, sudden)
        known = np.isfinite(long)
        self.exponent = np.where(known, exponent, self.exponent)
        self.rate = np.where(known, short, self.rate)
        values = self.long.values
        rise = self.logs - np.fmin.reduce(values, axis=0)
        lately = self.logs - values[(len(values) - 1) // 2]
        since_first = self.logs - self._first > log(thresholds.GROWN)
        grown = np.where(
            np.isnan(self._first) | (step > thresholds.REMEMBERED),
            rise > log(thresholds.GROWN_IN_SIGHT),
            since_first & (rise > log(thresholds.DOUBLED)),
        )
        still = ~(lately < thresholds.LATELY * rise)
        # Back to where it was before, as after a plateau in which the stream had swollen, is no blow-up.
        before = self.long.highest_before
        new = True if before is None else ~(self.logs <= before)
        hot = (self.exponent > thresholds.EXPONENT) & grown & still & new
        self._began = np.where(known & np.isnan(self.since), self.logs, self._began)
        self.since = since_when(self.since, hot, known, step)

    def risen(self, site: int) -> float:
        """n over what it was when it began to grow too fast."""
        return float(np.exp(self.logs[site] - self._began[site]))

    def exponential(self, site: int) -> bool:
        """Whether ln n is straighter over t than over ln t."""
        x, y = self.long.places, self.long.values[:, site]
        kept = np.isfinite(y)
        return _misfit(np.exp(x[kept] - x[-1]), y[kept]) < _misfit(x[kept], y[kept])

    def overflow(self, site: int) -> Crossing | None:
        """When the largest value, taken as 30 times the rms, would pass float16's: where the range is not read."""
        return crossing(*self._range.column(site), 2 * (FLOAT16 - log(thresholds.CREST)))

    def depth_factor(self, on_stream: Bools) -> float:
        """By which n grows from norm to norm; NaN where it grows linearly in depth, or of fewer than six norms."""
        logs = self.logs[on_stream]
        if len(logs) < thresholds.DEPTHS or not np.isfinite(logs).all():
            return nan
        depth = np.arange(len(logs), dtype=float)
        slope, level = np.polyfit(depth, logs, 1)
        straight = np.polyval(np.polyfit(depth, np.exp(logs), 1), depth)
        with np.errstate(invalid="ignore", divide="ignore"):
            linear = float(((np.log(straight) - logs) ** 2).sum())
        exponential = float(((level + slope * depth - logs) ** 2).sum())
        return float(np.exp(slope)) if slope > 0 and not linear <= exponential else nan


class Shocks:
    """What updates do to the output: the last readings, when one last overshot, and when they will."""

    LAST = 8

    def __init__(self) -> None:
        self.latest: dict[str, float] = {}
        self.overshot = -1
        """Last step at which an update overshot; of those in a row that the trust ratio shows, the first."""
        self._low: deque[int] = deque(maxlen=thresholds.TRUST_READINGS)
        self._changes: deque[tuple[int, float]] = deque(maxlen=self.LAST)

    def read(self, snapshot: Snapshot) -> None:
        change = snapshot.scalar("output_change_kl")
        if np.isnan(change) and np.isnan(snapshot.scalar("actual_loss_change")):
            return  # nearly every step
        trust = snapshot.scalar("trust_ratio")
        if isfinite(change):
            self.latest["output_change_kl"] = change
            if change > 0:
                self._changes.append((snapshot.step, log(change)))
            if change > thresholds.SHOCK:
                self.overshot = snapshot.step
        if isfinite(trust):
            self.latest["trust_ratio"] = trust
            if trust < thresholds.TRUST:
                self._low.append(snapshot.step)
            else:
                self._low.clear()
            if len(self._low) == thresholds.TRUST_READINGS:
                self.overshot = max(self.overshot, self._low[0])

    def forecast(self) -> Crossing | None:
        """When one update changes the output by .2 nats a token."""
        return crossing([s for s, _ in self._changes], [v for _, v in self._changes], log(thresholds.SHOCK))


def _misfit(x: Floats, y: Floats) -> float:
    return float(((y - np.polyval(np.polyfit(x, y, 1), x)) ** 2).sum()) if len(y) > 2 else nan
