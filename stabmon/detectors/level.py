"""Where a loss stands against where it stood: its first value, its best level, its noise."""

from __future__ import annotations

from collections import deque
from math import inf, isfinite, log, nan

from stabmon.detectors.window import Window
from stabmon.records import Snapshot

POINTS = 12
"""The level is the median of so many points."""
NOISE_POINTS = 64


def log_loss(snapshot: Snapshot) -> float:
    """ln of the loss; NaN where it was not read, is not finite, or is not above 0."""
    loss = snapshot.scalar("loss")
    return log(loss) if 0 < loss < inf else nan


def noise_of(changes: Window) -> float:
    """Standard deviation of a point: 1.05 median |dz|, exact for independent Gaussian ones; 0 of no changes."""
    return 1.05 * changes.median if len(changes) else 0.0


class LearningRate:
    """The learning rate, and whether it is another one at once. What is not a rate (0, NaN, Inf) is not heard of."""

    def __init__(self) -> None:
        self.now = nan

    def jumps(self, rate: float, least: float) -> bool:
        """Whether it goes to `rate` by more than that, a difference of logarithms, either way."""
        if not 0 < rate < inf:
            return False
        before, self.now = self.now, rate
        return abs(log(rate) - log(before)) > least


class Level:
    """Of z = ln loss. It knows what was pushed."""

    def __init__(self) -> None:
        self.first = nan
        self.start = nan
        """The first point, or the median of the first 12 if that is higher; NaN before there are 12."""
        self.best = inf
        """Lowest median of 12 points, those of the last 12 left out; inf before there are 24."""
        self.noise_at_best = inf
        """`noise` when the best level was known."""
        self.recent = Window(POINTS)
        self._medians: deque[float] = deque()
        self._changes = Window(NOISE_POINTS)
        self._last = nan

    def push(self, z: float, learn: bool = True) -> None:
        """Without `learn` neither best level nor noise hear of the point."""
        if not isfinite(self._last):
            self.first = z
        elif learn:
            self._changes.push(abs(z - self._last))
        self._last = z
        self.recent.push(z)
        if self.recent.full and not isfinite(self.start):
            self.start = max(self.first, self.recent.median)
        if self.recent.full and learn:
            self._medians.append(self.recent.median)
        if len(self._medians) > POINTS and (level := self._medians.popleft()) < self.best:
            self.best, self.noise_at_best = level, self.noise

    @property
    def progress(self) -> float:
        """ln(first loss / best level)."""
        return self.first - self.best

    @property
    def noise(self) -> float:
        """Standard deviation of a point."""
        return noise_of(self._changes)
