"""What tells why a loss rose: whether the data changed, and whether the updates were what they always are."""

from __future__ import annotations

from collections import deque
from math import isfinite, nan, sqrt
from statistics import median

import numpy as np

from stabmon.catalog.statistic import FLOOR_SQ
from stabmon.detectors.thresholds import shift as thresholds
from stabmon.detectors.window import Window
from stabmon.records import Snapshot


class Baseline:
    """A loss of a model that never changes but by counting: where it moves, the data did."""

    def __init__(self, statistic: str) -> None:
        self.statistic = statistic
        self._before = Window(thresholds.MEMORY)
        self._now: deque[float] = deque(maxlen=thresholds.NOW)

    def read(self, snapshot: Snapshot, learn: bool) -> None:
        """Without `learn` it does not become what was before."""
        value = snapshot.scalar(self.statistic)
        if isfinite(value):
            if learn and len(self._now) == thresholds.NOW:
                self._before.push(self._now[0])
            self._now.append(value)

    @property
    def before(self) -> float:
        """Median; NaN before there are enough readings."""
        return self._before.median if len(self._before) >= thresholds.LEAST else nan

    @property
    def now(self) -> float:
        return median(self._now) if self._now else nan

    @property
    def moved(self) -> bool:
        least = max(thresholds.MOVED_SPREADS * self._before.spread, thresholds.MOVED_LEAST) if len(self._before) else 0
        return abs(self.now - self.before) > least


class Updates:
    """KL and trust ratio of the updates, and how far they moved the weights."""

    def __init__(self) -> None:
        self._lengths = Window(thresholds.UPDATES)
        self._read = self._odd = -thresholds.MEMORY
        self.kl = self.trust = self.length = nan
        """The last of each; of the length, in units of its own median."""

    def read(self, snapshot: Snapshot) -> None:
        step = snapshot.step
        kl, squares = snapshot.scalar("output_change_kl"), snapshot["update_sq"]
        if isfinite(kl):
            self.kl, self.trust = kl, snapshot.scalar("trust_ratio")
            self._read = step
            self._odd = step if kl > thresholds.KL or self.trust < thresholds.TRUST else self._odd
        if squares.size and isfinite(squares[0]):
            length = sqrt(max(float(squares.sum(dtype=np.float64)), FLOOR_SQ))
            self.length = length / self._lengths.median if len(self._lengths) else 1.0
            self._lengths.push(length)
            self._odd = step if self.length > thresholds.LONGER else self._odd

    def ordinary(self, step: int) -> bool:
        """Whether those of the last 64 steps are known and none of them was odd."""
        return self._read > step - thresholds.MEMORY and self._odd <= step - thresholds.MEMORY


class Repeats:
    """Batches are never alike: a unigram loss that hardly changes from step to step is that of one batch, again."""

    def __init__(self) -> None:
        self._changes = Window(thresholds.MEMORY)
        self._last = nan
        self.count = 0
        """Steps in a row with a change of less than a tenth of the usual one."""
        self.since = 0

    def read(self, snapshot: Snapshot) -> None:
        value = snapshot.scalar("unigram_loss")
        change, self._last = abs(value - self._last), value if isfinite(value) else self._last
        if not isfinite(change):
            return
        if self._changes.full and change < thresholds.SAME * self._changes.median:
            self.since = self.since if self.count else snapshot.step
            self.count += 1
        else:
            self.count = 0
            self._changes.push(change)
