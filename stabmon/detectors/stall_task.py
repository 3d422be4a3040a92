"""What a run that may stall has to learn, and how far it is: its loss against that of models without context."""

from __future__ import annotations

from collections import deque
from math import isfinite
from statistics import median

from stabmon.detectors.thresholds import stall as thresholds
from stabmon.records import Snapshot

_LOSSES = ("loss", "unigram_loss", "bigram_loss", "class_mean_loss")


class Task:
    """The loss against what a model without context would score. Medians of the last readings: a batch is noisy."""

    def __init__(self) -> None:
        self._excess: deque[float] = deque(maxlen=thresholds.SMOOTHED)
        self._gap: deque[float] = deque(maxlen=thresholds.SMOOTHED)
        self._class_gap: deque[float] = deque(maxlen=thresholds.SMOOTHED)
        self._first: float | None = None
        self.excess = float("nan")
        """Loss above the unigram loss, in nats; NaN = unknown."""
        self.best = 0.0
        """The lowest `excess` so far; 0 if it never was under that."""
        self._pretrained = False
        self._had_bigram = False
        self.learnt_until = 0
        """The last step whose loss knew what had been learnt."""
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
            if loss - unigram < -self._learnt:
                self.learnt_until = snapshot.step
            if len(self._excess) == thresholds.SMOOTHED:
                self.best = min(self.best, self.excess)
        if isfinite(unigram):
            self._gap.append(unigram - bigram)
            self._had_bigram |= isfinite(bigram)
        if isfinite(unigram) and isfinite(class_mean):
            self._class_gap.append(unigram - class_mean)

    @property
    def _learnt(self) -> float:
        """So many nats under the unigram loss it still knows what it had learnt: half of that, where it is little."""
        return min(thresholds.LEARNING, -self.best / 2) if self.best < -thresholds.KNEW else thresholds.LEARNING

    @property
    def gap(self) -> float:
        """Nats that the left neighbour alone is worth; NaN = unknown: no targets, or targets that are no sequence."""
        known = [gap for gap in self._gap if gap == gap]
        return median(known) if 2 * len(known) > len(self._gap) else float("nan")

    @property
    def worth(self) -> float:
        """Nats that there are to learn at least: the gap, else, where they are enough to be sure of, those that the
        mean inputs of the classes are worth; NaN = unknown."""
        classes = median(self._class_gap) if len(self._class_gap) == thresholds.SMOOTHED else float("nan")
        return self.gap if isfinite(self.gap) or not classes > thresholds.LEARNABLE else classes

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
        return (self._had_bigram and gap != gap) or gap <= thresholds.LEARNABLE

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
    def slips(self) -> bool:
        """Whether it had begun to learn, and is back at the unigram loss."""
        return self.best < -thresholds.BEGUN and self.excess > -thresholds.KEPT

    @property
    def idle(self) -> bool:
        """Whether it is at the unigram loss, or over it, where there is more to learn."""
        return self.excess > -thresholds.LEFT and self.worth > thresholds.LEARNABLE and not self.quiet
