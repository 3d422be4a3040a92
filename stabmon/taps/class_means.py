"""Whether classes can be told from raw inputs: what a classifier scores that only knows each class's mean input.

A stalled classifier and one whose classes have nothing to do with its inputs look the same inside. They differ in the
task: if even the nearest mean beats the classes' frequencies, there is something to learn. The reverse proves nothing:
a class may have no mean worth knowing.

Shapes: N examples, F features, C classes, K temperatures.
"""

from __future__ import annotations

import io

import numpy as np

from stabmon.taps.ngrams import Floats, Ints, Mixture

MAX_CLASSES = 1024
MAX_EXAMPLES = 256
_MAX_SCORES = 1 << 13
"""Examples times classes of a step that are scored; all are counted."""
_TEMPERATURES = 6
"""1/32, 1/16 … 1: features of one input go together, which a diagonal Gaussian does not know. It is too sure by it."""
_PRIOR = np.append(np.full(_TEMPERATURES, 1 / 2 / _TEMPERATURES), 1 / 2)
_LEAST = 1e-30
"""Probability: what says never can never be right again."""
_SHRUNK = 1.0
"""Examples at the overall mean that each class is taken to have had: a mean of one example is no mean."""


class ClassMeans:
    """Online: each step's examples are scored by what was counted before the step, then counted.

    Gaussians of one diagonal variance around the mean of each class, at several temperatures, and the frequencies
    alone (the unigram): a mixture, so that features that tell nothing cannot beat the frequencies but by chance.
    """

    def __init__(self, classes: int, start: Floats) -> None:
        """`start`, float64[F]: an example, which all is counted from. Of numbers far from 0 the squares tell little."""
        self.start = start
        self.counts: Floats = np.zeros(classes)
        self.sums: Floats = np.zeros((classes, len(start)))
        self.squares: Floats = np.zeros(len(start))
        self.mixture = Mixture(_PRIOR)

    @classmethod
    def of(cls, classes: int, features: Floats) -> ClassMeans | None:
        """For examples such as these, float[N, F]; None where there are too many classes, or no features."""
        finite = features[np.isfinite(features).all(1)]
        return cls(classes, finite[0].astype(np.float64)) if classes <= MAX_CLASSES and finite.size else None

    def observe(self, labels: Ints, features: Floats, shares: Floats) -> float:
        """Loss in nats per example on its classes `labels`, int[N], where `shares`, float[C], are their probabilities
        without a look at the `features`, float[N, F]. NaN without examples, or with another number of features.
        Examples that are not finite, or of no class, are skipped."""
        if features.shape[1] != len(self.start):
            return float("nan")
        known = (labels >= 0) & (labels < len(self.counts)) & np.isfinite(features).all(1)
        chosen = np.flatnonzero(known)[:MAX_EXAMPLES]
        if not chosen.size:
            return float("nan")
        seen, x = labels[chosen], features[chosen] - self.start
        few = max(_MAX_SCORES // len(self.counts), 1)
        loss = self._score(seen[:few], x[:few], shares)
        self._count(seen, x)
        return loss

    def dump(self) -> bytes:
        """Everything it has learnt, as a compressed npz."""
        file = io.BytesIO()
        np.savez_compressed(
            file,
            start=self.start,
            counts=self.counts,
            sums=self.sums,
            squares=self.squares,
            weights=self.mixture.log_weights,
        )
        return file.getvalue()

    @classmethod
    def load(cls, blob: bytes) -> ClassMeans:
        """What `dump` wrote; it goes on as if it had never stopped."""
        with np.load(io.BytesIO(blob)) as file:
            means = cls(len(file["counts"]), file["start"])
            means.counts, means.sums, means.squares = file["counts"], file["sums"], file["squares"]
            means.mixture.log_weights = file["weights"]
        return means

    def _count(self, labels: Ints, x: Floats) -> None:
        order = np.argsort(labels)
        found, starts = np.unique(labels[order], return_index=True)
        self.counts += np.bincount(labels, minlength=len(self.counts))
        self.sums[found] += np.add.reduceat(x[order], starts)
        self.squares += (x**2).sum(0)

    def _score(self, labels: Ints, x: Floats, shares: Floats) -> float:
        densities = self._log_densities(x)
        likelier = np.exp((densities - densities.max(1, keepdims=True)) / 2 ** (_TEMPERATURES - 1))
        rows, parts = np.arange(len(x)), [shares[labels]]
        for _ in range(_TEMPERATURES):
            odds = likelier * shares
            parts.append(np.maximum(odds[rows, labels] / odds.sum(1), _LEAST))
            likelier = likelier**2
        mixed = self.mixture.score(np.stack(parts[::-1]))
        return float(-np.log(mixed).mean())

    def _log_densities(self, x: Floats) -> Floats:
        """Of each example in each class, but for a constant, float[N, C]."""
        total = self.counts.sum()
        if total == 0:
            return np.zeros((len(x), len(self.counts)))
        mean = self.sums.sum(0) / total
        counts = self.counts[:, None]
        means = (self.sums + _SHRUNK * mean) / (counts + _SHRUNK)
        scale = self._scale(mean, total)
        z, m = x * scale, means * scale
        apart = (z**2).sum(1)[:, None] - 2 * z @ m.T + (m**2).sum(1)
        wider = 1 + 1 / (self.counts + _SHRUNK)
        densities: Floats = -apart / (2 * wider) - (scale > 0).sum() / 2 * np.log(wider)
        return densities

    def _scale(self, mean: Floats, total: float) -> Floats:
        """1/standard deviation within the classes, float[F]; 0 of a feature that never changes."""
        seen = self.counts > 0
        between = (self.sums[seen] ** 2 / self.counts[seen, None]).sum(0)
        whole = (self.squares / total - mean**2).clip(0)
        within = (self.squares - between).clip(0)
        variance = (within + whole) / (total - seen.sum() + 1)
        scale: Floats = np.divide(1, np.sqrt(variance), out=np.zeros_like(variance), where=variance > 0)
        return scale
