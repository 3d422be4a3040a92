"""How long something has held, the context share over time, and the learning rate, of a run that may stall."""

from __future__ import annotations

from collections import deque
from math import exp, inf, log

import numpy as np

from stabmon.detectors.slope import theil_sen
from stabmon.detectors.thresholds import stall as thresholds
from stabmon.records import Snapshot

SHARE_FLOOR = 1e-30


class Spell:
    """How long something has held without a break."""

    def __init__(self) -> None:
        self.since: int | None = None

    def see(self, holds: bool, step: int) -> None:
        if not holds:
            self.since = None
        elif self.since is None:
            self.since = step

    def lasts(self, steps: int, now: int) -> bool:
        """Whether for so many steps."""
        return self.since is not None and now - self.since >= steps


class Share:
    """The readings of a context share, as ln s."""

    def __init__(self) -> None:
        self.steps: deque[int] = deque(maxlen=thresholds.WINDOW_STEPS)
        self.logs: deque[float] = deque(maxlen=thresholds.WINDOW_STEPS)

    def add(self, step: int, value: float) -> None:
        self.steps.append(step)
        self.logs.append(log(max(value, SHARE_FLOOR)))

    def restart(self) -> None:
        """Forget all but the last reading: what was measured at another learning rate is no trend."""
        while len(self.steps) > 1:
            self.steps.popleft()
            self.logs.popleft()

    @property
    def last(self) -> float:
        return exp(self.logs[-1]) if self.logs else float("nan")

    def below(self, limit: float) -> bool:
        """Whether the last two readings are."""
        return len(self.logs) >= 2 and max(self.logs[-1], self.logs[-2]) < log(limit)

    def first_below(self, limit: float) -> int:
        """Step of the first reading, of those kept, that is."""
        return next(step for step, value in zip(self.steps, self.logs, strict=True) if value < log(limit))

    def slope(self) -> float:
        """d ln s per step over the last 40 steps, or six readings if those are fewer; NaN with fewer than six."""
        if len(self.steps) < thresholds.WINDOW_READINGS:
            return float("nan")
        recent = sum(step > self.steps[-1] - thresholds.WINDOW_STEPS for step in self.steps)
        count = max(recent, thresholds.WINDOW_READINGS)
        steps, logs = np.array(self.steps, float)[-count:], np.array(self.logs)[-count:]
        return float(theil_sen(steps, logs[:, None])[0])


class Rate:
    """The learning rate, its highest since the last cut, and until when that cut may still show that it helps."""

    def __init__(self) -> None:
        self.top = float("nan")
        self._last = float("nan")
        self.cut_at = 0
        self.cut_until = 0

    def read(self, snapshot: Snapshot) -> bool:
        """Whether it is cut in this step."""
        rate = snapshot.scalar("learning_rate")
        if not 0 < rate < inf:
            return False  # 0 is the end of a schedule, from which nothing is to be waited for
        before, self._last = self._last, rate
        if not rate < before / thresholds.CUT:
            self.top = rate if not self.top >= rate else self.top
            return False
        # A slower run also turns slower: what it is worth waiting grows as the rate shrinks.
        self.cut_at = snapshot.step
        self.cut_until = snapshot.step + round(thresholds.CUT_STEPS * before / rate)
        self.top = rate
        return True
