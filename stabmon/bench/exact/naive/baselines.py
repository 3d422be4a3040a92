"""What a model would score that ignores the context: counts in dictionaries, one token after the other."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from stabmon.bench.exact.families.batches import MASK
from stabmon.bench.exact.twin import Step, Twin

Values = dict[str, float]

_FADE = 0.9
_STRENGTHS = [4.0**k for k in range(8)]


@dataclass
class Mixture:
    """Predictors, each with its weight. After a step a weight is its own 0.9th power times the likelihood of the step's
    tokens."""

    log_weights: list[float]

    def mix(self, parts: list[list[float]]) -> list[float]:
        """Probabilities of each token -> its mean."""
        largest = max(self.log_weights)
        weights = [math.exp(w - largest) for w in self.log_weights]
        return [sum(w * p for w, p in zip(weights, of_token, strict=True)) / sum(weights) for of_token in parts]

    def learn(self, parts: list[list[float]]) -> list[float]:
        """The same; then the weights learn from these tokens."""
        mixed = self.mix(parts)
        likelihoods = [sum(math.log(of_token[i]) for of_token in parts) for i in range(len(self.log_weights))]
        self.log_weights = [_FADE * w + more for w, more in zip(self.log_weights, likelihoods, strict=True)]
        return mixed


def _smoothed(count: int, total: int, base: float) -> list[float]:
    """(count + strength * base) / (total + strength) for eight strengths, and the base itself."""
    return [(count + k * base) / (total + k) for k in _STRENGTHS] + [base]


@dataclass
class Ladder:
    """What was counted in the steps so far."""

    vocabulary: int
    tokens: Counter[int] = field(default_factory=Counter)
    lefts: Counter[int] = field(default_factory=Counter)
    pairs: Counter[tuple[int, int]] = field(default_factory=Counter)
    unigram: Mixture = field(default_factory=lambda: Mixture([-k * math.log(2) for k in range(9)]))
    bigram: Mixture = field(default_factory=lambda: Mixture([math.log(1 / 16)] * 8 + [math.log(1 / 2)]))

    def step(self, labels: Tensor, inputs: Tensor | None) -> tuple[float, float]:
        """Losses of unigram and bigram on these labels, which are counted afterwards."""
        seen = [token for token in labels.flatten().tolist() if token >= 0]
        rows = labels.tolist() if labels.ndim == 2 else []
        pairs = counted = _pairs(rows, rows)
        if inputs is not None and set(inputs[labels >= 0].tolist()) == {MASK}:
            text = torch.where(labels >= 0, labels, inputs).tolist()
            pairs, counted = _pairs(inputs.tolist(), rows), _pairs(text, text)
        alone = self.unigram.learn([self._alone(token) for token in [right for _, right in pairs] or seen])
        after = [_smoothed(self.pairs[pair], self.lefts[pair[0]], p) for pair, p in zip(pairs, alone, strict=False)]
        bigram = _loss(self.bigram.learn(after)) if pairs else math.nan
        self.tokens.update(seen)
        self.pairs.update(counted)
        self.lefts.update(left for left, _ in counted)
        return _loss(alone), bigram

    def shares(self) -> list[float]:
        """Probability of each token."""
        return self.unigram.mix([self._alone(token) for token in range(self.vocabulary)])

    def _alone(self, token: int) -> list[float]:
        return _smoothed(self.tokens[token], sum(self.tokens.values()), 1 / self.vocabulary)


def _pairs(lefts: list[list[int]], rights: list[list[int]]) -> list[tuple[int, int]]:
    """A token and the next one's target."""
    rows = zip(lefts, rights, strict=True)
    return [pair for left, right in rows for pair in zip(left, right[1:], strict=False) if min(pair) >= 0]


def _loss(probabilities: list[float]) -> float:
    return -sum(math.log(p) for p in probabilities) / len(probabilities)


def vocabulary_of(twin: Twin) -> int:
    logits: Tensor = twin.steps[0].calls[0].outputs[""][0]["logits"]
    return logits.shape[-1]


def losses_of(twin: Twin, step: Step) -> tuple[float, float] | str:
    """On the labels of the last micro-batch of each step up to this one."""
    batches = [earlier.calls[-1].batch for earlier in twin.steps[: step.number]]
    if batches[0]["labels"].is_floating_point():
        return "the targets are no tokens or classes"
    ladder = Ladder(vocabulary_of(twin))
    return [ladder.step(batch["labels"], _beside(batch)) for batch in batches][-1]


def _beside(batch: Mapping[str, Tensor]) -> Tensor | None:
    """The tokens that the model was given in the labels' places."""
    inputs = batch.get("input_ids")
    return inputs if inputs is not None and inputs.shape == batch["labels"].shape else None


def uniform_loss(twin: Twin, step: Step) -> Values | str:
    """ln(vocabulary)"""
    found = losses_of(twin, step)
    return found if isinstance(found, str) else {"": math.log(vocabulary_of(twin))}


def unigram_loss(twin: Twin, step: Step) -> Values | str:
    """Of a predictor that has counted the tokens of the steps before."""
    found = losses_of(twin, step)
    return found if isinstance(found, str) else {"": found[0]}


def bigram_loss(twin: Twin, step: Step) -> Values | str:
    """Of one that has counted which token follows which."""
    found = losses_of(twin, step)
    if isinstance(found, str):
        return found
    return {"": found[1]} if found[1] == found[1] else "a class has no left neighbour"


NAIVE: dict[str, Callable[[Twin, Step], Values | str]] = {
    function.__name__: function for function in (uniform_loss, unigram_loss, bigram_loss)
}
