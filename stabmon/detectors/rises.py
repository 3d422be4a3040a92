"""Rises of the loss over its trend, one at a time: when one begins, how high it is, when it is over."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from stabmon.detectors.level import LearningRate
from stabmon.detectors.spike_readings import Quick, Slow
from stabmon.detectors.thresholds import loss as thresholds


@dataclass(slots=True)
class Rise:
    """One that is not over. All in ln loss."""

    since: int
    level: float
    """That it left."""
    size: float
    """The rise at which it is told."""
    top: float
    """Its highest point."""
    points: int = 1

    def lasts(self, z: float) -> bool:
        self.points += 1
        self.top = max(self.top, z)
        return z - self.level > self.size / 2


class Rises:
    """Nothing is learnt from a rise while it lasts; after 64 points it is the new level. 64 points after a known change
    are learnt from and not judged. `slowly`: whether ranks are looked at for small rises that last, too.
    """

    def __init__(self, slowly: bool = True) -> None:
        self._slowly = slowly
        self._rate = LearningRate()
        self._start()

    def _start(self) -> None:
        self.open: Rise | None = None
        self._step = -1
        self._steps: deque[int] = deque(maxlen=thresholds.SPIKE_LAST)
        self._muted = 0
        self._learn_afresh()

    def _learn_afresh(self) -> None:
        self._slow, self._quick = Slow() if self._slowly else None, Quick()

    @property
    def rate(self) -> float:
        """The learning rate, as it was last read."""
        return self._rate.now

    def change(self) -> None:
        """Another level or noise is no news from here on."""
        self._muted = thresholds.CHANGE_POINTS

    def see(self, step: int, z: float, rate: float, keep: bool = False) -> float:
        """The weaker of evidence and size, in units of what opens a rise, and 1 or more while one is open.

        z = ln loss; `rate`, the learning rate: a jump of it is a known change. `keep`: it is never the new level.
        """
        if step < self._step:
            self._start()  # a restart: another run begins in the same log
        self._step = step
        self._steps.append(step)
        if self._rate.jumps(rate, thresholds.CHANGE):
            self.change()
        return self._judge_open(self.open, z, keep) if self.open else self._judge(z)

    def _judge_open(self, rise: Rise, z: float, keep: bool) -> float:
        old = rise.points >= thresholds.SPIKE_POINTS and not keep
        if rise.lasts(z) and not old:
            return max((z - rise.level) / rise.size, 1.0)
        if old:
            self._learn_afresh()
        elif self._slow:
            self._slow.forget()
        self.open = None
        return 0.0

    def _judge(self, z: float) -> float:
        score = 0.0
        if self._muted:
            self._muted -= 1
        elif self._step >= thresholds.EARLY_STEPS:
            score = self._weigh(z)
        if self.open is None:
            self._quick.push(z)
            if self._slow:
                self._slow.push(z)
        return score

    def _weigh(self, z: float) -> float:
        slow = self._slow.weigh(self._step, z) if self._slow else 0.0
        quick = self._quick.weigh(z)
        if self._slow and slow >= 1:
            self.open = Rise(self._steps[0], self._slow.level, self._slow.size, z)
        elif quick >= 1:
            level = self._slow.level if self._slow else self._quick.level
            self.open = Rise(self._step, level, self._quick.size, z)
        return max(slow, quick, 0.0)
