"""What is known of a run whose tokens may have become alike: its context share, its task, its layers, its rate."""

from __future__ import annotations

from collections import deque
from math import exp, inf, isfinite, log
from statistics import median

import numpy as np

from stabmon.detectors.slope import theil_sen
from stabmon.detectors.thresholds import stall as thresholds
from stabmon.records import Site, Snapshot

SHARE_FLOOR = 1e-30
_LOSSES = ("loss", "unigram_loss", "bigram_loss", "class_mean_loss")


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


class Task:
    """The loss against what a model without context would score. Medians of the last readings: a batch is noisy."""

    def __init__(self) -> None:
        self._excess: deque[float] = deque(maxlen=thresholds.SMOOTHED)
        self._gap: deque[float] = deque(maxlen=thresholds.SMOOTHED)
        self._told: deque[float] = deque(maxlen=thresholds.SMOOTHED)
        self._first: float | None = None
        self.excess = float("nan")
        """Loss above the unigram loss, in nats; NaN = unknown."""
        self.best = 0.0
        """Lowest loss above the unigram loss, in nats."""
        self._pretrained = False
        self._paired = False
        self.learnt_until = 0
        """The last step whose loss was well below the unigram loss."""
        self.losses: dict[str, float] = {}

    def read(self, snapshot: Snapshot) -> None:
        loss, unigram, bigram, class_mean = now = [snapshot.scalar(name) for name in _LOSSES]
        for name, value in zip(_LOSSES, now, strict=True):
            if isfinite(value):
                self.losses[name] = value
        self._pretrained |= snapshot.scalar("pretrained") > 0
        if isfinite(loss) and self._first is None:
            self._first = loss
        if isfinite(loss) and isfinite(unigram):
            self._excess.append(loss - unigram)
            self.excess = median(self._excess)
            if loss - unigram < -thresholds.LEARNING:
                self.learnt_until = snapshot.step
            if len(self._excess) == thresholds.SMOOTHED:
                self.best = min(self.best, self.excess)
        if isfinite(unigram):
            self._gap.append(unigram - bigram)
            self._paired |= isfinite(bigram)
        if isfinite(unigram) and isfinite(class_mean):
            self._told.append(unigram - class_mean)

    @property
    def gap(self) -> float:
        """Nats that the left neighbour alone is worth; NaN = unknown: no targets, or targets that are no sequence."""
        known = [gap for gap in self._gap if gap == gap]
        return median(known) if 2 * len(known) > len(self._gap) else float("nan")

    @property
    def worth(self) -> float:
        """Nats that there are to learn at least: the gap, else, where they are enough to be sure of, those that the
        mean inputs of the classes are worth; NaN = unknown."""
        told = median(self._told) if len(self._told) == thresholds.SMOOTHED else float("nan")
        return self.gap if isfinite(self.gap) or not told > thresholds.LEARNABLE else told

    @property
    def learns(self) -> bool:
        """Whether it beats the best constant guess by more than noise does."""
        return self.excess < -thresholds.LEARNING

    @property
    def pointless(self) -> bool:
        """Whether it is known that there is nothing to learn from context, or targets have ceased to follow the inputs:
        a fault of the data, which the loss tells of.
        """
        gap = self.gap
        return (self._paired and gap != gap) or gap <= thresholds.LEARNABLE

    @property
    def quiet(self) -> bool:
        """Whether a collapse would be no fault: it learns, there is nothing to learn, or it came with weights that
        had learnt before and has not lost that."""
        came = (self._pretrained or self.began < -thresholds.LEARNING) and not self.fell_back
        return came or self.learns or self.pointless

    @property
    def began(self) -> float:
        """First loss above the unigram loss, in nats."""
        return float("nan") if self._first is None else self._first - self.losses.get("unigram_loss", float("nan"))

    @property
    def fell_back(self) -> bool:
        """Whether it had been well below the unigram loss before."""
        knew = self.began < -2 * thresholds.LEARNING and self.excess > -thresholds.LEARNING
        return knew or self.best < -2 * thresholds.LEARNING

    @property
    def unlearnt(self) -> bool:
        """Whether it had been below the unigram loss, and is no more."""
        return self.best < -thresholds.KNEW and self.excess > -thresholds.KEPT and not self.pointless

    @property
    def idle(self) -> bool:
        """Whether it is at the unigram loss, or over it, where there is more to learn."""
        return self.excess > -thresholds.KEPT and self.worth > thresholds.LEARNABLE and not self.quiet


class Stream:
    """Post-LN: whether the last norm reads next to nothing but what the last block adds. Its input is x + f, with a
    stream x of mean square 1, of which 1 / n is left.
    """

    def __init__(self) -> None:
        self.length = float("nan")
        """n, the mean square of the last norm's input, where that norm comes after a sum."""
        self._first = float("nan")
        self.filling, self.swamped = Spell(), Spell()

    def read(self, snapshot: Snapshot) -> None:
        length = snapshot.scalar("final_norm_input_msq")
        norms = snapshot.layout.sites_of("norm_input_msq")
        if not isfinite(length) or not norms or norms[-1].placement != "post":
            return
        self.length = length
        self._first = self._first if isfinite(self._first) else length
        grown = length >= thresholds.SWAMPED_GROWN * self._first
        self.filling.see(grown and length >= thresholds.FILLING, snapshot.step)
        self.swamped.see(grown and length >= thresholds.SWAMPED, snapshot.step)


class Depth:
    """What the layers say: last token similarity of every norm, and the lowest block's gradient over the highest's."""

    def __init__(self) -> None:
        self.similarity = float("nan")
        self.ratio = float("nan")
        self.starved = 0
        """Readings in a row in which the lowest block got next to no gradient."""
        self.stream = Stream()
        self.site: Site | None = None

    def read(self, snapshot: Snapshot) -> None:
        self.stream.read(snapshot)
        if not snapshot.layers_read:
            return
        alike = snapshot["token_similarity"]
        if np.isfinite(alike).any():
            self.similarity = float(alike[len(alike) // 2])
            self.site = snapshot.layout.sites_of("token_similarity")[int(np.nanargmax(alike))]
        squares = snapshot["grad_sq"]
        if not np.isfinite(squares).any():
            return
        sites = snapshot.layout.sites_of("grad_sq")
        blocks = [i for i, site in enumerate(sites) if site.layer is not None and site.role == "block"]
        if len(blocks) < 2:
            return
        norms = snapshot["grad_norm"]
        low, high = float(norms[blocks[0]]), float(norms[blocks[-1]])
        if np.isfinite(low) and np.isfinite(high) and high > 0:
            self.ratio = low / high
            self.starved = self.starved + 1 if self.ratio < thresholds.STARVED else 0

    def agrees(self, noisy: bool) -> bool:
        """Whether neither reading speaks against a collapse; under dropout noise tokens differ all the same."""
        return (noisy or not self.similarity <= thresholds.ALIKE) and not self.ratio >= thresholds.FADED


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
