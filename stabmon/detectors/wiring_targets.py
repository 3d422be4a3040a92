"""A model that sees what it is to predict."""

from __future__ import annotations

from collections import deque
from math import isfinite
from statistics import median

import numpy as np

from stabmon.detectors.thresholds import wiring as thresholds
from stabmon.records import Finding, Snapshot


class Leak:
    """The loss is far under what one token of context gives, sooner than any model learns so much from more of it."""

    def __init__(self) -> None:
        self.finding: Finding | None = None
        self._losses: deque[tuple[float, float, float]] = deque(maxlen=thresholds.LEAK_READINGS)
        self._batches = Batches()

    def read(self, snapshot: Snapshot) -> None:
        now = snapshot.scalar("loss"), snapshot.scalar("unigram_loss"), snapshot.scalar("bigram_loss")
        if self.finding is not None or not all(map(isfinite, now)):
            return
        self._losses.append(now)
        self._batches.read(*now[1:])
        if now[0] >= _least(snapshot.step) * now[2]:
            return  # nearly every step
        loss, unigram, bigram = (median(column) for column in zip(*self._losses, strict=True))
        full = len(self._losses) == thresholds.LEAK_READINGS
        early = full and unigram - bigram > thresholds.LEARNABLE and loss < _least(snapshot.step) * bigram
        if early and not self._batches.again:
            self.finding = _tell(snapshot.step, loss, unigram, bigram)


class Batches:
    """Whether the same few batches come again and again, which are learnt by heart: their baseline losses recur."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, float]] = deque(maxlen=thresholds.BATCHES)

    def read(self, unigram: float, bigram: float) -> None:
        self._seen.append((unigram, bigram))

    @property
    def again(self) -> bool:
        """Whether most of the last nine were seen before."""
        seen = np.array(self._seen)
        usual = np.median(np.abs(np.diff(seen, axis=0)), axis=0)
        apart = np.abs(seen[-thresholds.LEAK_READINGS :, None] - seen[None]) / np.maximum(
            usual, thresholds.BATCH_CHANGE
        )
        alike = (apart.max(axis=2) < thresholds.BATCH_ALIKE).sum(axis=1) > 1  # each is like itself
        return int(alike.sum()) >= thresholds.BATCHES_KNOWN


def _least(step: int) -> float:
    """Share of the bigram loss that no model has got under so soon."""
    return thresholds.LEAK_SHARE_SOON if step <= thresholds.LEAK_SOON else thresholds.LEAK_SHARE


def _tell(step: int, loss: float, unigram: float, bigram: float) -> Finding:
    return Finding(
        severity="warning",
        action=f"looks at its targets: at step {step} its loss is {loss:.2g}, where the left neighbour alone gives "
        f"{bigram:.2g}. Stop it and check the attention mask and how targets are shifted; what it learns is to copy "
        "them",
        cause="The targets are among what the model is given, by a mask that is not causal or by targets that are not "
        "shifted; or there is so little data that it is known by heart.",
        remedies=(
            "Change the last token of an input: no output before it may move.",
            "Look for is_causal=False, a mask of the wrong sign, and targets that are the inputs themselves.",
            "If one small set is overfitted on purpose, or everything needed stands in the context, nothing is wrong.",
        ),
        evidence={"loss": loss, "bigram_loss": bigram, "unigram_loss": unigram},
        since=step,
        ruled_out=(
            f"targets that are no sequence, such as classes: the left neighbour is worth {unigram - bigram:.2f} nats",
            "a few batches that come again and again: their unigram and bigram losses would recur",
        ),
    )
