"""The n-gram ladder: what a model that ignores context would score on this run's targets, learnt as they pass.

A stall and a task without anything to learn look the same inside the network. They differ in the task: on text an
online bigram predictor beats an online unigram predictor, on independent tokens it never does.

Shapes: N tokens scored, K components of a mixture. Losses are in nats per token.
"""

from __future__ import annotations

import io
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

_SLOTS = 1 << 22
_LARGEST_ID = 1 << 22
_CONCENTRATIONS: Floats = np.exp2(2 * np.arange(8.0))[:, None]
# Last entry: the base. A unigram beats the uniform guess nearly always; whether a bigram beats it is the question.
_UNIGRAM_PRIOR: Floats = np.exp2(-np.arange(9.0))
_BIGRAM_PRIOR = np.append(np.full(8, 1 / 16), 1 / 2)
# The best concentration moves as counts fill, so a step's evidence fades within about ten steps.
_FADE = 0.9


class Baselines(NamedTuple):
    """Losses in nats per token; NaN = there was nothing to score."""

    uniform: float
    unigram: float
    bigram: float


_NOTHING = Baselines(float("nan"), float("nan"), float("nan"))


class Mixture:
    """Bayes mixture of predictors, the last of which is the base: it cannot do worse for long than any of them."""

    def __init__(self, prior: Floats) -> None:
        self.log_weights = np.log(prior)

    def mix(self, parts: Floats) -> Floats:
        """Probability of each of N tokens by the predictors, float[K, N] -> mixed, float[N]."""
        weights = np.exp(self.log_weights - self.log_weights.max())
        mixed: Floats = weights / weights.sum() @ parts
        return mixed

    def score(self, parts: Floats) -> Floats:
        """The same; then the weights learn from these tokens."""
        mixed = self.mix(parts)
        self.log_weights = _FADE * self.log_weights + _log_likelihood(parts)
        self.log_weights -= self.log_weights.max()
        return mixed


def _smoothed(count: Ints, total: Ints | int, base: Floats) -> Floats:
    """Counts smoothed by the base q, (c + k q)/(n + k) for each concentration k, and the base itself: float[K, N].

    Each is a probability whatever the counts, so on independent tokens none beats its base but by chance.
    """
    return np.concatenate([(count + _CONCENTRATIONS * base) / (total + _CONCENTRATIONS), base[None]])


class Ladder:
    """Online baselines: each step's tokens are scored by what was counted before the step, then counted.

    Values are those of the step alone, on the very tokens that the step's loss is of, so that loss and baseline
    share their noise; whoever compares them smooths the difference. Until a few thousand tokens have passed the
    baselines stand too high for want of counts, and the gap unigram - bigram too low: it starts at 0.
    """

    def __init__(self, vocabulary: int | None = None) -> None:
        if vocabulary is not None and vocabulary < 1:
            raise ValueError(
                f"vocabulary is {vocabulary}; pass the number of classes (>= 1), or None to learn it from the targets"
            )
        self.fixed = vocabulary is not None
        self.vocabulary = vocabulary or 1
        self.tokens: Ints = np.zeros(self.vocabulary, np.int64)
        self.lefts: Ints = np.zeros(self.vocabulary, np.int64)
        self.exact = self.fixed and self.vocabulary**2 <= _SLOTS
        slots = self.vocabulary**2 if self.exact else _SLOTS
        self.owners: Ints = np.zeros(slots, np.int64)
        self.pairs: Ints = np.zeros(slots, np.int64)
        self.unigram = Mixture(_UNIGRAM_PRIOR)
        self.bigram = Mixture(_BIGRAM_PRIOR)

    def observe(self, targets: NDArray[Any], given: NDArray[Any] | None = None, ignore_index: int = -100) -> Baselines:
        """Scores then counts `targets`, int[..., T]; a pair is two neighbours of the last axis.

        `given`, of the same shape, are the inputs of masked text: there a pair is a target and the input to its left,
        and pairs are counted wherever the text is known, from targets and inputs together. The bigram is NaN for class
        labels (1-d) and where no token has a left neighbour. Ids that are negative, or not in the vocabulary, are
        skipped.
        """
        if targets.dtype.kind not in "iu" or targets.size == 0:
            return _NOTHING
        ids = targets.astype(np.int64, copy=False)
        valid = self._valid(ids) & (ids != ignore_index)
        seen = ids[valid]
        if seen.size == 0:
            return _NOTHING
        self._grow(int(seen.max()) + 1)
        pairs = self._pairs(ids, ids, valid, valid)
        counted = pairs
        if given is not None:
            inputs = given.astype(np.int64, copy=False)
            read = self._valid(inputs)
            self._grow(int(inputs[read].max(initial=0)) + 1)
            pairs = self._pairs(inputs, ids, read, valid)
            text = np.where(valid, ids, inputs)
            counted = self._pairs(text, text, valid | read, valid | read)
        baselines = self._score(*pairs) if pairs[0].size else self._score_alone(seen)
        self.tokens += np.bincount(seen, minlength=self.vocabulary)
        self._count(*counted)
        return baselines

    def shares(self) -> Floats:
        """Probability of every token, as the unigram has it now, float[vocabulary]."""
        uniform = np.full(self.vocabulary, 1 / self.vocabulary)
        return self.unigram.mix(_smoothed(self.tokens, int(self.tokens.sum()), uniform))

    def dump(self) -> bytes:
        """Everything it has learnt, as a compressed npz."""
        used = np.flatnonzero(self.pairs)
        file = io.BytesIO()
        np.savez_compressed(
            file,
            vocabulary=np.array([self.vocabulary, self.fixed]),
            tokens=self.tokens,
            lefts=self.lefts,
            slots=used.astype(np.int32),
            owners=self.owners[used],
            pairs=self.pairs[used],
            weights=np.stack([self.unigram.log_weights, self.bigram.log_weights]),
        )
        return file.getvalue()

    @classmethod
    def load(cls, blob: bytes) -> Ladder:
        """The ladder that `dump` wrote; it goes on as if it had never stopped."""
        with np.load(io.BytesIO(blob)) as file:
            vocabulary, fixed = (int(x) for x in file["vocabulary"])
            ladder = cls(vocabulary if fixed else None)
            ladder.vocabulary = vocabulary
            ladder.tokens, ladder.lefts = file["tokens"], file["lefts"]
            ladder.owners[file["slots"]] = file["owners"]
            ladder.pairs[file["slots"]] = file["pairs"]
            ladder.unigram.log_weights, ladder.bigram.log_weights = file["weights"]
        return ladder

    def _valid(self, ids: Ints) -> NDArray[np.bool_]:
        return (ids >= 0) & (ids < (self.vocabulary if self.fixed else _LARGEST_ID))

    def _pairs(self, left: Ints, right: Ints, lefts: NDArray[np.bool_], rights: NDArray[np.bool_]) -> tuple[Ints, Ints]:
        """Where both count."""
        if left.ndim < 2:
            return left[:0], right[:0]
        both = lefts[..., :-1] & rights[..., 1:]
        return left[..., :-1][both], right[..., 1:][both]

    def _grow(self, vocabulary: int) -> None:
        if vocabulary <= self.vocabulary:
            return
        more = vocabulary - self.vocabulary
        self.tokens = np.pad(self.tokens, (0, more))
        self.lefts = np.pad(self.lefts, (0, more))
        self.vocabulary = vocabulary

    def _score_alone(self, seen: Ints) -> Baselines:
        return Baselines(float(np.log(self.vocabulary)), _loss(self._unigram(seen)), float("nan"))

    def _score(self, left: Ints, right: Ints) -> Baselines:
        alone = self._unigram(right)
        pair, slot = self._slots(left, right)
        count = np.where(self.owners[slot] == pair, self.pairs[slot], 0)
        after_left = self.bigram.score(_smoothed(count, self.lefts[left], alone))
        return Baselines(float(np.log(self.vocabulary)), _loss(alone), _loss(after_left))

    def _unigram(self, ids: Ints) -> Floats:
        uniform = np.full(ids.size, 1 / self.vocabulary)
        return self.unigram.score(_smoothed(self.tokens[ids], int(self.tokens.sum()), uniform))

    def _slots(self, left: Ints, right: Ints) -> tuple[Ints, Ints]:
        """(name of each pair, its slot in the table). Names start at 1: an owner of 0 is a free slot."""
        if self.exact:
            slot = left * self.vocabulary + right
            return slot + 1, slot
        pair = left * _LARGEST_ID + right + 1
        # Fibonacci hashing: the upper bits of a wrapped product with 2^64 / golden ratio.
        mixed = pair.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        return pair, (mixed >> np.uint64(42)).astype(np.int64)

    def _count(self, left: Ints, right: Ints) -> None:
        pair, slot = self._slots(left, right)
        free = self.owners[slot] == 0
        self.owners[slot[free]] = pair[free]
        # A pair whose slot is another's is left to the unigram: were it counted, rows would sum to more than 1
        # and the bigram would seem to win on independent tokens.
        counted = self.owners[slot] == pair
        np.add.at(self.pairs, slot[counted], 1)
        np.add.at(self.lefts, left[counted], 1)


def _loss(probability: Floats) -> float:
    return float(-_log_likelihood(probability) / probability.size)


def _log_likelihood(probability: Floats) -> Floats:
    """Sum of the logarithms over the last axis. A logarithm of eight factors costs no more than of one, and a product
    of eight probabilities, none below 1e-31, is no underflow."""
    starts = np.arange(0, probability.shape[-1], 8)
    total: Floats = np.log(np.multiply.reduceat(probability, starts, axis=-1)).sum(axis=-1)
    return total
