"""What the labels are read from: the loss of a run, and the losses of the baselines beside it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
KEPT = 0.9
"""Of the moving average at each step: about ten steps of memory."""
MOST_DIFFICULTY = 1.0
"""Nats: so much of a batch's loss is held to be the batch's own doing."""
START_STEPS = 20
"""Until then the online unigram predictor is still learning."""


@dataclass(frozen=True)
class Curve:
    """float64[row] each, rows in the order of their steps. Losses in nats; NaN: not known."""

    steps: NDArray[np.int64]
    loss: Floats
    unigram: Floats
    bigram: Floats

    @property
    def finite(self) -> Curve:
        """Up to the first loss that is not finite, without it."""
        bad = np.flatnonzero(~np.isfinite(self.loss))
        if not bad.size:
            return self
        end = bad[0]
        return Curve(self.steps[:end], self.loss[:end], self.unigram[:end], self.bigram[:end])

    @property
    def even(self) -> Floats:
        """The loss without what makes one batch harder than another: how much more than usual a model without context
        loses on it. On text that leaves a noise of .03 to .08 nats, from .23 to .27.
        """
        later = self.unigram[START_STEPS:]
        if not np.isfinite(later).any():
            return self.loss
        difficulty = np.nan_to_num(self.unigram - np.nanmedian(later))
        difficulty[:START_STEPS] = 0.0
        even: Floats = self.loss - difficulty.clip(-MOST_DIFFICULTY, MOST_DIFFICULTY)
        return even


def moving(values: Floats) -> Floats:
    """The moving average, from the first value on; NaN leaves it as it is."""
    found = np.empty(len(values))
    average = np.nan
    for i, value in enumerate(values.tolist()):
        if value == value:
            average = value if average != average else KEPT * average + (1 - KEPT) * value
        found[i] = average
    return found


def stretches(flags: NDArray[np.bool_]) -> list[tuple[int, int]]:
    """[first, end) of each run of True."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], flags, [False])).astype(np.int8)))
    return [(int(first), int(end)) for first, end in edges.reshape(-1, 2)]
