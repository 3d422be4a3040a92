"""What a classifier scores that only knows each class's mean picture: one number after the other."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import fmean

from torch import Tensor

from stabmon.bench.exact.naive.baselines import Ladder, Mixture, vocabulary_of
from stabmon.bench.exact.twin import Step, Twin

Values = dict[str, float]
Vector = list[float]

_TEMPERATURES = [2.0**-k for k in range(6)]
_SIDE = 4
"""Parts of a side of a picture of three channels."""


@dataclass
class _Means:
    """What was seen in the steps so far."""

    seen: list[tuple[int, Vector]] = field(default_factory=list)
    mixture: Mixture = field(default_factory=lambda: Mixture([math.log(1 / 12)] * 6 + [math.log(1 / 2)]))

    def step(self, examples: list[tuple[int, Vector]], shares: list[float]) -> float:
        """Loss on these examples, (class, features), which are known afterwards."""
        parts = []
        for label, x in examples:
            logs = [self._log_density(c, x) for c in range(len(shares))]
            odds = [[math.log(p) + t * log for p, log in zip(shares, logs, strict=True)] for t in _TEMPERATURES]
            told = [math.exp(o[label] - max(o)) / sum(math.exp(log - max(o)) for log in o) for o in odds]
            parts.append([*told, shares[label]])
        self.seen += examples
        return -fmean(math.log(p) for p in self.mixture.learn(parts))

    def _log_density(self, label: int, x: Vector) -> float:
        """Of a Gaussian around the mean of its class, where one example more lies at the mean of all."""
        if not self.seen:
            return 0.0
        own = [y for c, y in self.seen if c == label]
        wider = 1 + 1 / (len(own) + 1)
        total = -len(x) / 2 * math.log(wider)
        for j, value in enumerate(x):
            mean = fmean(y[j] for _, y in self.seen)
            of_class = (sum(y[j] for y in own) + mean) / (len(own) + 1)
            total -= (value - of_class) ** 2 / self._variance(j, mean) / wider / 2
        return total

    def _variance(self, j: int, mean: float) -> float:
        """Within the classes, with one degree of freedom more, worth the variance of all."""
        classes = {c for c, _ in self.seen}
        squares = fmean((y[j] - mean) ** 2 for _, y in self.seen)
        for c in classes:
            own = [y[j] for label, y in self.seen if label == c]
            squares += sum((value - fmean(own)) ** 2 for value in own)
        return squares / (len(self.seen) - len(classes) + 1)


def _features(picture: Tensor) -> Vector:
    """Means over 4 x 4 parts of each channel."""
    channels, tall, wide = picture.shape
    places = [(c, i, k) for c in range(channels) for i in range(_SIDE) for k in range(_SIDE)]
    high, broad = tall // _SIDE, wide // _SIDE
    return [
        float(picture[c, i * high : (i + 1) * high, k * broad : (k + 1) * broad].double().mean()) for c, i, k in places
    ]


def class_mean_loss(twin: Twin, step: Step) -> Values | str:
    """On the pictures of the last micro-batch of each step up to this one."""
    batches = [earlier.calls[-1].batch for earlier in twin.steps[: step.number]]
    if "pixel_values" not in batches[0] or batches[0]["labels"].is_floating_point():
        return "there are no classes of real-valued inputs"
    means, ladder = _Means(), Ladder(vocabulary_of(twin))
    loss = math.nan
    for batch in batches:
        pictures = [_features(picture) for picture in batch["pixel_values"]]
        loss = means.step(list(zip(batch["labels"].tolist(), pictures, strict=True)), ladder.shares())
        ladder.step(batch["labels"], None)
    return {"": loss}


NAIVE: dict[str, Callable[[Twin, Step], Values | str]] = {"class_mean_loss": class_mean_loss}
