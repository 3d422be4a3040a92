"""What a model would score that ignores the context: counts in dictionaries, one token after the other."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from torch import Tensor

from stabmon.bench.exact.twin import Step, Twin

Values = dict[str, float]

_FADE = 0.9
_STRENGTHS = [4.0**k for k in range(8)]


@dataclass
class _Mixture:
    """(count + strength * base) / (total + strength) for eight strengths, and the base itself, each with its weight.
    After a step a weight is its own 0.9th power times the likelihood of the step's tokens."""

    log_weights: list[float]

    def learn(self, counted: list[tuple[int, int, float]]) -> list[float]:
        """(count, total, base) of each token -> its probability; then the weights learn from these tokens."""
        parts = [[(c + k * b) / (n + k) for k in _STRENGTHS] + [b] for c, n, b in counted]
        largest = max(self.log_weights)
        weights = [math.exp(w - largest) for w in self.log_weights]
        mixed = [sum(w * p for w, p in zip(weights, of_token, strict=True)) / sum(weights) for of_token in parts]
        likelihoods = [sum(math.log(of_token[i]) for of_token in parts) for i in range(len(weights))]
        self.log_weights = [_FADE * w + more for w, more in zip(self.log_weights, likelihoods, strict=True)]
        return mixed


@dataclass
class _Ladder:
    """What was counted in the steps so far."""

    vocabulary: int
    tokens: Counter[int] = field(default_factory=Counter)
    lefts: Counter[int] = field(default_factory=Counter)
    pairs: Counter[tuple[int, int]] = field(default_factory=Counter)
    unigram: _Mixture = field(default_factory=lambda: _Mixture([-k * math.log(2) for k in range(9)]))
    bigram: _Mixture = field(default_factory=lambda: _Mixture([math.log(1 / 16)] * 8 + [math.log(1 / 2)]))

    def step(self, labels: Tensor) -> tuple[float, float]:
        """Losses of unigram and bigram on these labels, which are counted afterwards."""
        seen = [token for token in labels.flatten().tolist() if token >= 0]
        rows = labels.tolist() if labels.ndim == 2 else []
        pairs = [pair for row in rows for pair in zip(row, row[1:], strict=False) if min(pair) >= 0]
        total = sum(self.tokens.values())
        scored = [right for _, right in pairs] or seen
        alone = self.unigram.learn([(self.tokens[token], total, 1 / self.vocabulary) for token in scored])
        after = [(self.pairs[pair], self.lefts[pair[0]], p) for pair, p in zip(pairs, alone, strict=False)]
        bigram = _loss(self.bigram.learn(after)) if pairs else math.nan
        self.tokens.update(seen)
        self.pairs.update(pairs)
        self.lefts.update(left for left, _ in pairs)
        return _loss(alone), bigram


def _loss(probabilities: list[float]) -> float:
    return -sum(math.log(p) for p in probabilities) / len(probabilities)


def _vocabulary(twin: Twin) -> int:
    logits: Tensor = twin.steps[0].calls[0].outputs[""][0]["logits"]
    return logits.shape[-1]


def _losses(twin: Twin, step: Step) -> tuple[float, float] | str:
    """On the labels of the last micro-batch of each step up to this one."""
    labels = [earlier.calls[-1].batch["labels"] for earlier in twin.steps[: step.number]]
    if labels[0].is_floating_point():
        return "the targets are no tokens or classes"
    ladder = _Ladder(_vocabulary(twin))
    return [ladder.step(of_step) for of_step in labels][-1]


def uniform_loss(twin: Twin, step: Step) -> Values | str:
    """ln(vocabulary)"""
    found = _losses(twin, step)
    return found if isinstance(found, str) else {"": math.log(_vocabulary(twin))}


def unigram_loss(twin: Twin, step: Step) -> Values | str:
    """Of a predictor that has counted the tokens of the steps before."""
    found = _losses(twin, step)
    return found if isinstance(found, str) else {"": found[0]}


def bigram_loss(twin: Twin, step: Step) -> Values | str:
    """Of one that has counted which token follows which."""
    found = _losses(twin, step)
    if isinstance(found, str):
        return found
    return {"": found[1]} if found[1] == found[1] else "a class has no left neighbour"


NAIVE: dict[str, Callable[[Twin, Step], Values | str]] = {
    function.__name__: function for function in (uniform_loss, unigram_loss, bigram_loss)
}
