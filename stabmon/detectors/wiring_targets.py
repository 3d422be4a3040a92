"""A model that sees what it is to predict."""

from __future__ import annotations

from collections import deque
from math import isfinite
from statistics import median

import numpy as np

from stabmon.detectors.shift_readings import Repeats
from stabmon.detectors.thresholds import shift
from stabmon.detectors.thresholds import wiring as thresholds
from stabmon.records import Finding, Snapshot


class Leak:
    """Outputs were seen to move with the token that they are to predict; or the loss is far under what one token of
    context gives, sooner than any model learns so much from more of it: an info where they were seen not to move.
    """

    def __init__(self) -> None:
        self.finding: Finding | None = None
        self.ahead: bool | None = None
        """Whether they move; None: it was not tried."""
        self._losses: deque[tuple[float, float, float]] = deque(maxlen=thresholds.LEAK_READINGS)
        self._batches = Batches()

    def read(self, snapshot: Snapshot) -> None:
        now = snapshot.scalar("loss"), snapshot.scalar("unigram_loss"), snapshot.scalar("bigram_loss")
        if self.ahead and self.finding is None and snapshot.step >= thresholds.ORIGIN_STEP:
            self.finding = _seen()
        if self.finding is not None or not all(map(isfinite, now)):
            return
        self._losses.append(now)
        self._batches.read(snapshot)
        if now[0] >= _least(snapshot.step) * now[2]:
            return  # nearly every step
        loss, unigram, bigram = (median(column) for column in zip(*self._losses, strict=True))
        full = len(self._losses) == thresholds.LEAK_READINGS
        early = full and unigram - bigram > thresholds.LEARNABLE and loss < _least(snapshot.step) * bigram
        if early and not self._batches.again:
            told = _low if self.ahead is None else _by_heart
            self.finding = told(snapshot.step, loss, unigram, bigram)


class Batches:
    """Whether the same few batches come again and again, which are learnt by heart: their baseline losses recur. Of one
    that comes from some step on, the counts behind them still learn much; it is known by its unigram loss alone.
    """

    def __init__(self) -> None:
        self._seen: deque[tuple[float, float]] = deque(maxlen=thresholds.BATCHES)
        self._repeats = Repeats()

    def read(self, snapshot: Snapshot) -> None:
        unigram = snapshot.scalar("unigram_loss")
        self._seen.append((unigram, snapshot.scalar("bigram_loss")))
        if unigram < snapshot.scalar("uniform_loss") - shift.EVEN:  # the even guess is always the same
            self._repeats.read(snapshot.step, unigram)

    @property
    def again(self) -> bool:
        """Whether most of the last nine were seen before."""
        if self._repeats.count >= shift.SAME_STEPS:
            return True
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


def _seen() -> Finding:
    return Finding(
        severity="warning",
        action="sees the tokens that it is to predict: outputs move with the token after them. Stop it and make its "
        "attention causal; what it learns is to copy its targets, and its loss says nothing",
        cause="In the first step a token of each sequence was changed, and what the model said just before it changed "
        "as well, in most of them. So something mixes places both ways: a mask, a convolution, a norm over time.",
        remedies=(
            "Look for is_causal=False, a mask of the wrong sign, or one that is given where it is not used.",
            "Pad convolutions on the left only; take no mean, norm or top-k choice over all places.",
            "If it is meant (experts that choose their tokens), leave this detector out.",
        ),
        evidence={"looks_ahead": 1.0},
        since=1,
        ruled_out=(
            "an encoder: the targets are the inputs, shifted by one",
            "noise: the same call made twice differs by less",
        ),
    )


def _low(step: int, loss: float, unigram: float, bigram: float) -> Finding:
    return Finding(
        severity="warning",
        action=f"looks at its targets: {_early(step, loss, bigram)}. Stop it and check the attention mask and how "
        "targets are shifted; what it learns is to copy them",
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
            _no_classes(unigram - bigram),
            "a few batches that come again and again: their unigram and bigram losses would recur",
        ),
    )


def _by_heart(step: int, loss: float, unigram: float, bigram: float) -> Finding:
    """Where neither the mask nor the shift of the targets is at fault: it was tried."""
    return Finding(
        severity="info",
        action=f"has most likely learnt its data by heart: {_early(step, loss, bigram)}. Count how many different "
        "tokens it is given, and take an evaluation loss on other data; if a small set is overfitted on purpose, "
        "nothing is wrong",
        cause="So low a loss so soon mostly means little data, of which each step draws the same pieces. Or everything "
        "needed stands in the context; or the targets get in by another way than the mask, as by another input.",
        remedies=(
            "Count the different batches and tokens: a set of a few lines, a sampler that draws from few of them, one "
            "file many times over.",
            "Take an evaluation loss on other data: where that stays high, it knows its data by heart.",
            "Where that is as low: look whether everything needed stands in the context (templates, logs), and whether "
            "another input holds the targets.",
        ),
        evidence={"loss": loss, "bigram_loss": bigram, "unigram_loss": unigram},
        since=step,
        ruled_out=(
            "a mask that is not causal: no output moves with the token after it",
            "targets that are not shifted: they are the inputs, shifted by one",
            _no_classes(unigram - bigram),
        ),
    )


def _early(step: int, loss: float, bigram: float) -> str:
    return f"at step {step} its loss is {loss:.2g}, where the left neighbour alone gives {bigram:.2g}"


def _no_classes(worth: float) -> str:
    return f"targets that are no sequence, such as classes: the left neighbour is worth {worth:.2f} nats"
