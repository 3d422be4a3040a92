"""What is known of a run whose tokens may have become alike: its context share, its task, its layers."""

from __future__ import annotations

from collections import deque
from math import exp, log
from statistics import median

import numpy as np

from stabmon.detectors.slope import theil_sen
from stabmon.records import Site, Snapshot

SHARE_FLOOR = 1e-30
# Slope of ln s: over 40 steps, or over six readings where fewer lie in them.
WINDOW_STEPS = 40
WINDOW_READINGS = 6
# Bigram gap: 0.000 +- .005 on independent tokens, >= .4 on text after 3,000 of them.
LEARNABLE = 0.1
# A model that uses context is under the unigram loss by more than this; a stalled one within .05 of it.
LEARNING = 0.25
# Of 24 stalled or broken runs 21 had both at step 20, of 85 others 3.
ALIKE = 0.95
FADED = 0.05
SMOOTHED = 9


class Share:
    """The readings of a context share, as ln s."""

    def __init__(self) -> None:
        self.steps: deque[int] = deque(maxlen=WINDOW_STEPS)
        self.logs: deque[float] = deque(maxlen=WINDOW_STEPS)

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

    def slope(self) -> float:
        """d ln s per step over the last 40 steps, or six readings if those are fewer; NaN with fewer than six."""
        recent = sum(step > self.steps[-1] - WINDOW_STEPS for step in self.steps) if self.steps else 0
        count = max(recent, WINDOW_READINGS)
        if len(self.steps) < WINDOW_READINGS:
            return float("nan")
        steps, logs = np.array(self.steps, float)[-count:], np.array(self.logs)[-count:]
        return float(theil_sen(steps, logs[:, None])[0])


class Task:
    """The loss against what a model without context would score. Medians of the last readings: a batch is noisy."""

    def __init__(self) -> None:
        self._excess: deque[float] = deque(maxlen=SMOOTHED)
        self._gap: deque[float] = deque(maxlen=SMOOTHED)
        self._first: float | None = None
        self._best = 0.0
        self._pretrained = False
        self.losses: dict[str, float] = {}

    def read(self, snapshot: Snapshot) -> None:
        now = {name: snapshot.scalar(name) for name in ("loss", "unigram_loss", "bigram_loss")}
        self.losses |= {name: value for name, value in now.items() if np.isfinite(value)}
        loss, unigram, bigram = now.values()
        self._pretrained |= snapshot.scalar("pretrained") > 0
        if np.isfinite(loss) and self._first is None:
            self._first = loss
        if np.isfinite(loss) and np.isfinite(unigram):
            self._excess.append(loss - unigram)
            if len(self._excess) == SMOOTHED:
                self._best = min(self._best, self.excess)
        if np.isfinite(unigram) and np.isfinite(bigram):
            self._gap.append(unigram - bigram)

    @property
    def excess(self) -> float:
        """Loss above the unigram loss, in nats."""
        return median(self._excess) if self._excess else float("nan")

    @property
    def gap(self) -> float:
        """Nats that the left neighbour alone is worth; NaN = unknown."""
        return median(self._gap) if self._gap else float("nan")

    @property
    def quiet(self) -> bool:
        """Whether a collapse would be no fault: it learns, there is nothing to learn, or it came with weights that
        had learnt before and has not lost that."""
        came = (self._pretrained or self._began < -LEARNING) and not self.fell_back
        return came or self.excess < -LEARNING or self.gap <= LEARNABLE

    @property
    def _began(self) -> float:
        """First loss above the unigram loss, in nats."""
        return float("nan") if self._first is None else self._first - self.losses.get("unigram_loss", float("nan"))

    @property
    def fell_back(self) -> bool:
        """Whether it had been below the unigram loss before."""
        return self._best < -2 * LEARNING or (self._began < -2 * LEARNING and self.excess > -LEARNING)


class Depth:
    """What the layers say: last token similarity of every norm, and the lowest block's gradient over the highest's."""

    def __init__(self) -> None:
        self.similarity = float("nan")
        self.ratio = float("nan")
        self.site: Site | None = None

    def read(self, snapshot: Snapshot) -> None:
        alike = snapshot["token_similarity"]
        if np.isfinite(alike).any():
            self.similarity = float(alike[len(alike) // 2])
            self.site = snapshot.layout.sites_of("token_similarity")[int(np.nanargmax(alike))]
        sites = snapshot.layout.sites_of("grad_norm")
        layers = [i for i, site in enumerate(sites) if site.layer is not None]
        if len(layers) < 2:
            return
        low, high = (float(snapshot["grad_norm"][i]) for i in (layers[0], layers[-1]))
        if np.isfinite(low) and np.isfinite(high) and high > 0:
            self.ratio = low / high

    def agrees(self, noisy: bool) -> bool:
        """Whether neither reading speaks against a collapse; under dropout noise tokens differ all the same."""
        return (noisy or not self.similarity <= ALIKE) and not self.ratio >= FADED
