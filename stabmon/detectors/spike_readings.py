"""What the spike detector reads off a loss: how far it is above its trend, slowly and at once. All in ln loss."""

from __future__ import annotations

from math import isfinite, nan

from stabmon.detectors.level import NOISE_POINTS, POINTS, noise_of
from stabmon.detectors.sequential import WINDOW, ShiryaevRoberts, Whitened, tie
from stabmon.detectors.thresholds import loss as thresholds
from stabmon.detectors.window import Window

TREND_POINTS = 64
LEAST_TREND = 12
LEAST_RISES = 16


class Slow:
    """Points that are a little too high for long: evidence from ranks, and size.

    The trend is the median of the last 64, and of what it leaves the same again: the second takes out what a steady
    fall leaves of the first.
    """

    def __init__(self) -> None:
        self._levels, self._lags = Window(TREND_POINTS), Window(TREND_POINTS)
        self._white, self._sums = Whitened(), ShiryaevRoberts()
        self._rises = Window(WINDOW)
        self._last: tuple[float, ...] = ()
        """Rises of the last four points."""
        self.size = nan
        """The rise that alerts."""

    @property
    def level(self) -> float:
        return self._levels.median

    def forget(self) -> None:
        self._sums.forget()

    def weigh(self, step: int, z: float) -> float:
        """Evidence or size, whichever is less, in units of what alerts; before z is pushed. The size is what each of
        the last four points has.
        """
        excess = self._excess(z)
        if not isfinite(excess) or not self._rises:
            return 0.0
        self._sums.bet(self._white.residual(excess), tie(step))
        tail = self._rises.quantile(thresholds.SPIKE_QUANTILE)
        self.size = max(thresholds.SPIKE_SPREADS * self._rises.spread, thresholds.SPIKE_LEAST, tail)
        last = (*self._last[1 - thresholds.SPIKE_LAST :], self._rise(z, excess))
        return min(self._sums.evidence / thresholds.RUN_LENGTH, min(last) / self.size)

    def push(self, z: float) -> None:
        excess = self._excess(z)
        if isfinite(excess):
            self._sums.push(self._white.residual(excess))
            self._white.push(excess)
            if len(self._last) == thresholds.SPIKE_LAST:  # a spike must not raise its own bar
                self._rises.push(self._last[0])
            self._last = (*self._last[1 - thresholds.SPIKE_LAST :], self._rise(z, excess))
        if len(self._levels) >= LEAST_TREND:
            self._lags.push(z - self.level)
        self._levels.push(z)

    def _excess(self, z: float) -> float:
        """Over the trend; NaN where there are fewer than 12 points to compare with."""
        return z - self.level - self._lags.median if len(self._lags) >= LEAST_TREND else nan

    def _rise(self, z: float, excess: float) -> float:
        """A fall that slows down is an excess over its trend too, but no rise."""
        return min(z - self.level, excess)


class Quick:
    """The second highest of the last three points, over the median of the twelve before: one bad batch is no spike."""

    def __init__(self) -> None:
        self._before, self._changes = Window(POINTS), Window(NOISE_POINTS)
        self._pair: tuple[float, ...] = ()
        self._rises = Window(WINDOW)
        """Of single points over the twelve before."""
        self.size = nan
        """The rise that alerts."""

    @property
    def level(self) -> float:
        return self._before.median

    def weigh(self, z: float) -> float:
        """The rise in units of what alerts; before z is pushed."""
        if len(self._rises) < LEAST_RISES:
            return 0.0
        tail = self._rises.quantile(thresholds.SPIKE_QUANTILE)
        noise = noise_of(self._changes)
        self.size = max(thresholds.JUMP_NOISE * noise, thresholds.JUMP_LEAST, thresholds.JUMP_TAILS * tail)
        return (sorted((*self._pair, z))[-2] - self.level) / self.size

    def push(self, z: float) -> None:
        if self._pair:
            self._changes.push(abs(z - self._pair[-1]))
        if len(self._pair) == 2:
            if self._before.full:
                self._rises.push(self._pair[0] - self.level)
            self._before.push(self._pair[0])
        self._pair = (*self._pair[-1:], z)
