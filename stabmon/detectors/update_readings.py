"""How far single updates moved the output, against what they do in this run. Sizes are nats (KL), judged as ln."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from math import exp, isfinite, log, nan

from stabmon.detectors.thresholds import updates as thresholds
from stabmon.detectors.window import Window

TINY = 1e-30


@dataclass(frozen=True, slots=True)
class Reading:
    """One update, on the probe."""

    step: int
    change: float
    """Relative change of the output."""
    kl: float
    """Nats; NaN of outputs that predict no classes."""
    actual: float
    predicted: float
    """Change of the probe's loss, and what its gradient promised, in nats; NaN without labels."""
    plateau: bool = False
    """All tokens get nearly the same answer."""

    @property
    def size(self) -> float:
        """KL, or change^2, which is like it (live: KL is 1.5 to 3 times as much)."""
        return self.change**2 if self.kl != self.kl else self.kl

    @property
    def trust(self) -> float:
        return self.actual / self.predicted if self.predicted else nan

    @property
    def overshot(self) -> bool:
        """The loss rose where the gradient promised a fall."""
        return self.predicted < 0 and self.actual > thresholds.OVERSHOT

    @property
    def exploded(self) -> bool:
        """It rose by so much that no later loss need confirm it."""
        return self.overshot and self.actual > thresholds.EXPLODED


class Levels:
    """What updates do in this run: the median of the last eight, and of the last 32 that were not hot. In nats."""

    def __init__(self) -> None:
        self._near = Window(thresholds.SHOCK_READINGS)
        self._own = Window(thresholds.OWN_READINGS)

    @property
    def near(self) -> float:
        """NaN before there are eight."""
        return exp(self._near.median) if self._near.full else nan

    @property
    def own(self) -> float:
        """Hot readings left out; NaN before there are eight."""
        return exp(self._own.median) if len(self._own) >= thresholds.SHOCK_READINGS else nan

    @property
    def limit(self) -> float:
        """Above it the next update is a shock: .2, less in a run of small steps, more in a hot one, and 1 before there
        are eight readings.
        """
        if not self._near.full:
            return thresholds.SHOCK_UNKNOWN
        rise = max(thresholds.SHOCK_RISE * self.near, thresholds.SHOCK_FLOOR)
        return max(thresholds.SHOCK_RATIO * self.near, min(rise, thresholds.SHOCK))

    def hot(self, reading: Reading) -> bool:
        """Large for this run; never before there are eight readings."""
        return reading.size > max(thresholds.HOT_RATIO * self.own, thresholds.HOT)

    def push(self, reading: Reading) -> None:
        if reading.step > thresholds.SETTLED_STEP and isfinite(reading.size):
            size = log(max(reading.size, TINY))
            self._near.push(size)
            if not self.hot(reading):
                self._own.push(size)


class Updates:
    """The last readings, and the levels that they are held against: on a plateau updates are small, so those on it and
    those off it are kept apart.
    """

    def __init__(self) -> None:
        self.recent: deque[Reading] = deque(maxlen=thresholds.EDGE_READINGS)
        self._levels = {True: Levels(), False: Levels()}

    def levels(self, reading: Reading) -> Levels:
        """Those of where the run was at that reading."""
        return self._levels[reading.plateau]

    def push(self, reading: Reading, shock: bool) -> None:
        """No level hears of shocks."""
        if not shock:
            self.levels(reading).push(reading)
        self.recent.append(reading)

    @property
    def overshoots(self) -> bool:
        """Of the last three updates two were large, and kept less than .3 of what the gradient promised."""
        last = list(self.recent)[-3:]
        return sum(self.levels(r).hot(r) and r.trust < thresholds.TRUST for r in last) > 1

    @property
    def trust(self) -> float:
        """What the last five kept of what their gradients promised, taken together; NaN where that was no fall."""
        promised = sum(r.predicted for r in self.recent)
        return sum(r.actual for r in self.recent) / promised if promised < 0 else nan

    @property
    def at_the_edge(self) -> bool:
        """Large for long, and curvature eats much of what they promise."""
        sizes = sorted(r.size for r in self.recent)
        full = len(sizes) == thresholds.EDGE_READINGS and isfinite(self.levels(self.recent[-1]).own)
        return full and sizes[len(sizes) // 2] > thresholds.EDGE and self.trust < thresholds.EDGE_TRUST
