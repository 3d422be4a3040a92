"""What tells why a loss rose: whether the data changed, and whether the updates were what they always are."""

from __future__ import annotations

from collections import deque
from math import isfinite, nan, sqrt
from statistics import median

import numpy as np

from stabmon.catalog.statistic import FLOOR_SQ
from stabmon.detectors.level import LearningRate
from stabmon.detectors.thresholds import shift as thresholds
from stabmon.detectors.window import Window
from stabmon.records import Snapshot


class Level:
    """Where a number is, the median of its last three readings, and where it was, that of 64 before."""

    def __init__(self) -> None:
        self._before = Window(thresholds.MEMORY)
        self._last: deque[float] = deque(maxlen=thresholds.NOW)
        self.missing = 0
        """Steps in a row at which it was not read."""
        self._change: float | None = None

    def read(self, value: float, learn: bool) -> None:
        """Without `learn` no reading becomes part of what was before."""
        self._change = None
        self.missing = 0 if isfinite(value) else self.missing + 1
        if isfinite(value):
            if learn and len(self._last) == thresholds.NOW:
                self._before.push(self._last[0])
            self._last.append(value)

    @property
    def before(self) -> float:
        """NaN before there are 64 readings."""
        return self._before.median if self._before.full else nan

    @property
    def now(self) -> float:
        return median(self._last) if self._last else nan

    @property
    def line(self) -> float:
        """A change that noise does not make."""
        return max(thresholds.SPREADS * self._before.spread, thresholds.LEAST)

    @property
    def change(self) -> float:
        """From before to now, in units of `line`; 0 while that is not known."""
        if self._change is None:  # asked for several times a step
            self._change = (self.now - self.before) / self.line if self._before.full else 0.0
        return self._change

    @property
    def gone(self) -> bool:
        """Whether it was read all the time and is not any more."""
        return self._before.full and self.missing >= thresholds.NOW - 1


class Updates:
    """The KL of the updates, and how far they moved the weights. The trust ratio is of no use here: on the probe, an
    update that other data asked for looks bad, too.
    """

    def __init__(self) -> None:
        self._lengths = Window(thresholds.UPDATES)
        self.read_at = self._odd = -thresholds.MEMORY
        """Steps of the last KL, and of the last odd reading."""
        self.kl = self.length = nan
        """The last of each; of the length, in units of its own median."""

    def read(self, snapshot: Snapshot) -> None:
        step, kl = snapshot.step, snapshot.scalar("output_change_kl")
        if isfinite(kl):
            self.kl, self.read_at = kl, step
            self._odd = step if kl > thresholds.KL else self._odd
        if not snapshot.layers_read:
            return
        squares = snapshot["update_sq"]
        if squares.size and isfinite(square := float(squares.sum(dtype=np.float64))):
            length = sqrt(max(square, FLOOR_SQ))
            self.length = length / self._lengths.median if len(self._lengths) else 1.0
            self._lengths.push(length)
            self._odd = step if self.length > thresholds.LONGER else self._odd

    def ordinary(self, step: int) -> bool:
        """Whether those of the last 64 steps are known and none of them was odd."""
        return self.read_at > step - thresholds.MEMORY and self._odd <= step - thresholds.MEMORY


class Rate:
    """The learning rate: whether it was changed at once, so that a rise is no news."""

    def __init__(self) -> None:
        self._rate = LearningRate()
        self._jumped = -thresholds.MEMORY

    def read(self, snapshot: Snapshot) -> None:
        if self._rate.jumps(snapshot.scalar("learning_rate"), thresholds.JUMP):
            self._jumped = snapshot.step

    def jumped(self, step: int) -> bool:
        """Within the last 64 steps."""
        return self._jumped > step - thresholds.MEMORY


class Repeats:
    """Batches are never alike: a unigram loss that hardly changes from step to step is that of one batch, again. Not so
    where many batches have targets of one class alone, as with a class that is rare: their unigram losses are alike.
    """

    def __init__(self) -> None:
        self._changes = Window(thresholds.MEMORY)
        self._recent: deque[float] = deque(maxlen=thresholds.MEMORY + thresholds.SAME_STEPS)
        self._last = nan
        self._alike = False
        """Whether such changes are usual."""
        self._count = 0
        self.since = 0

    @property
    def count(self) -> int:
        """Steps in a row with a change of less than a tenth of the usual one; 0 where such changes are usual."""
        return 0 if self._alike else self._count

    def read(self, step: int, unigram: float) -> None:
        change, self._last = abs(unigram - self._last), unigram
        if not isfinite(change):
            return
        self._recent.append(change)
        small = thresholds.SAME * self._changes.median if self._changes.full else 0.0
        if change < small:
            self.since = self.since if self._count else step
            self._count += 1
            if self._count == thresholds.SAME_STEPS:
                before = list(self._recent)[: -thresholds.SAME_STEPS]
                self._alike = sum(each < small for each in before) > thresholds.SAME_USUAL * len(before)
        else:
            self._count, self._alike = 0, False
            self._changes.push(change)
