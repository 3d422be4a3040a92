"""What the gradient spike detector reads: the total norm at every step, blocks when they are sampled. All as ln."""

from __future__ import annotations

from collections import deque
from math import inf, isfinite, log, nan

import numpy as np

from stabmon.detectors.arrays import Floats, logs_of
from stabmon.detectors.rings import Rings
from stabmon.detectors.sequential import ShiryaevRoberts, Streams, Whitened, tie
from stabmon.detectors.thresholds import updates as thresholds
from stabmon.detectors.window import Window
from stabmon.records import Site, Snapshot

BLOCKS = ("grad_norm", "update_norm", "rms_t")


class Total:
    """Of all gradients. Its level is the median of the last 64."""

    def __init__(self) -> None:
        self._levels = Window(thresholds.TREND)
        self._white, self.sums = Whitened(), ShiryaevRoberts()
        self._last: deque[float] = deque(maxlen=thresholds.SLOW_LAST)

    @property
    def level(self) -> float:
        """NaN while there are too few points."""
        return self._levels.median if len(self._levels) >= thresholds.LEAST_TREND else nan

    @property
    def jump(self) -> float:
        """The rise over the level that is a jump."""
        return max(thresholds.JUMP, thresholds.JUMP_SPREADS * self._levels.spread)

    @property
    def least(self) -> float:
        """The rise that each of the last four points must have."""
        return max(thresholds.SLOW_LEAST, thresholds.SLOW_SPREADS * self._white.values.spread)

    @property
    def lowest(self) -> float:
        """The lowest rise of the last four points."""
        return min(self._last)

    def bet(self, step: int, x: float) -> None:
        """On x before it is pushed."""
        rise = x - self.level
        if isfinite(rise):
            self._last.append(rise)
            self.sums.bet(self._white.residual(rise), tie(step))

    def push(self, x: float) -> None:
        rise = x - self.level
        if isfinite(rise):
            self.sums.push(self._white.residual(rise))
            self._white.push(rise)
        self._levels.push(x)


class Blocks:
    """Of each block its gradient norm, its update per learning rate and RMS_t, as streams that are judged at once."""

    def __init__(self, snapshot: Snapshot) -> None:
        found = [(name, site) for name in BLOCKS for site in snapshot.layout.sites_of(name)]
        self.names = [name for name, _ in found]
        """Statistic of each stream."""
        self.sites = [site for _, site in found]
        self.streams = Streams(len(found))
        self._levels = Rings(len(found), thresholds.BLOCK_TREND)
        self._last = Rings(len(found), thresholds.SLOW_LAST)
        self.steps: deque[int] = deque(maxlen=thresholds.SLOW_LAST)
        self._values = self.rises = np.full(len(found), np.nan)
        """`rises`: over each stream's level, at the last reading; NaN where there is none yet."""

    def read(self, snapshot: Snapshot) -> None:
        self._values = self._logs(snapshot)
        ready = self._levels.pushed >= thresholds.LEAST_TREND
        level = self._levels.quantiles(np.arange(len(ready)), 0.5)[0]
        self.rises = np.where(ready, self._values - level, np.nan)

    def bet(self, step: int) -> None:
        """On what was read, before it is pushed."""
        self.steps.append(step)
        rows = np.flatnonzero(np.isfinite(self.rises))
        self._last.push(rows, self.rises[rows])
        self.streams.bet(self.rises, tie(step))

    def push(self) -> None:
        self.streams.push(self.rises)
        rows = np.flatnonzero(np.isfinite(self._values))
        self._levels.push(rows, self._values[rows])

    def least(self, stream: int) -> float:
        """The rise that each of its last four readings must have."""
        return float(max(thresholds.SLOW_LEAST, thresholds.SLOW_SPREADS * self.streams.spread[stream]))

    def lowest(self, stream: int) -> float:
        """The lowest rise of its last four readings."""
        return float(self._last.values[stream].min())

    def level(self, stream: int) -> float:
        return float(self._values[stream] - self.rises[stream])

    @property
    def loudest(self) -> Site | None:
        """The block whose gradient rose most at the last reading."""
        rises = [rise for rise, name in zip(self.rises, self.names, strict=True) if name == "grad_norm"]
        return self.sites[int(np.nanargmax(rises))] if np.isfinite(rises).any() else None

    def _logs(self, snapshot: Snapshot) -> Floats:
        rate = snapshot.scalar("learning_rate")
        norm, update, rms = (snapshot[name].astype(np.float64) for name in BLOCKS)
        return logs_of(np.concatenate([norm, update / rate if rate > 0 else update, rms]))


class Explosion:
    """Gradients that feed on themselves: four rises in a row, each by e on average."""

    def __init__(self) -> None:
        self.since = 0
        """Step of the first rise."""
        self.first = inf
        """Before it."""
        self._last = inf
        self._rises = 0

    def read(self, step: int, x: float) -> bool:
        self._rises = self._rises + 1 if x - self._last >= thresholds.GROWTH_EACH else 0
        if self._rises == 0:
            self.first = x
        elif self._rises == 1:
            self.since = step
        self._last = x
        return self._rises >= thresholds.GROWTH_STEPS and x - self.first >= self._rises * thresholds.GROWTH


class News:
    """Whether larger gradients are good news: the end of a plateau, or a loss that falls."""

    def __init__(self) -> None:
        self._shares = Window(thresholds.PLATEAU_POINTS)
        self._losses, self._recent = Window(thresholds.PLATEAU_POINTS), Window(thresholds.FALL_POINTS)

    def read(self, snapshot: Snapshot) -> None:
        share, loss = snapshot.scalar("context_share"), snapshot.scalar("loss")
        if isfinite(share):
            self._shares.push(share)
        if 0 < loss < inf:
            self._recent.push(log(loss))
            self._losses.push(log(loss))

    @property
    def share(self) -> float:
        """The lowest of the last 64 steps; NaN = not read."""
        return self._shares.quantile(0.0) if len(self._shares) else nan

    @property
    def excess(self) -> float:
        """ln of the median of the last 8 losses, over that of the last 64."""
        return self._recent.median - self._losses.median if self._recent.full else nan

    @property
    def noise(self) -> float:
        """Spread of ln loss; NaN = not read."""
        return self._losses.spread if len(self._losses) else nan

    @property
    def good(self) -> bool:
        return self.share < thresholds.PLATEAU_SHARE or self.excess < -thresholds.FALL_SPREADS * self.noise
