"""What the scenarios train on. A source yields (inputs, targets) for ever. Shapes: B windows, T places."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache

import torch
from torch import Tensor

from stabmon.demo.text import read_text

IGNORED = -100
LENGTH = 32
MASKED = 0.25
PATCH = 2
"""Digits are 8 x 8 pixels: 16 patches of 4."""

Batch = tuple[Tensor, Tensor]
Batches = Iterator[Batch]
Source = Callable[[int, int], Batches]
"""(batch size, seed) -> batches."""

VOCABULARY = {"markov": 64, "text": 256, "masked": 257, "independent": 64, "copy": 32, "digits": 10}
"""Sizes of the output, by source; `masked` has one id more for the mask."""


def markov(size: int, seed: int) -> Batches:
    """A chain with 4 equally likely successors a token: bigram entropy ln 4 = 1.39, unigram about 3.99 nats."""
    random = torch.Generator().manual_seed(seed)
    successors = torch.randint(VOCABULARY["markov"], (VOCABULARY["markov"], 4), generator=random)
    while True:
        tokens = [torch.randint(VOCABULARY["markov"], (size,), generator=random)]
        for _ in range(LENGTH):
            tokens.append(successors[tokens[-1], torch.randint(4, (size,), generator=random)])
        yield _shifted(torch.stack(tokens, 1))


def text(size: int, seed: int) -> Batches:
    """Bytes of the standard library's source: unigram 3.1 nats, bigram 2.4."""
    for window in _windows(size, seed):
        yield _shifted(window)


def masked(size: int, seed: int) -> Batches:
    """The same for an encoder: a quarter of the bytes are hidden, and they are the targets."""
    random = torch.Generator().manual_seed(seed + 1_000_000)
    for window in _windows(size, seed):
        tokens = window[:, :-1]
        hidden = torch.rand(tokens.shape, generator=random) < MASKED
        hidden[:, 0] = True
        yield tokens.masked_fill(hidden, VOCABULARY["masked"] - 1), tokens.masked_fill(~hidden, IGNORED)


def independent(size: int, seed: int) -> Batches:
    """Tokens that do not depend on each other (Zipf's law): there is nothing to learn but their frequencies."""
    random = torch.Generator().manual_seed(seed)
    weights = 1 / torch.arange(1.0, VOCABULARY["independent"] + 1)
    while True:
        yield _shifted(torch.multinomial(weights.expand(size, -1), LENGTH + 1, replacement=True, generator=random))


def copy(size: int, seed: int) -> Batches:
    """The second half repeats the first: no n-gram helps, attention does, and it is found all at once."""
    random = torch.Generator().manual_seed(seed)
    while True:
        half = torch.randint(VOCABULARY["copy"], (size, LENGTH // 2), generator=random)
        yield _shifted(torch.cat((half, half, half[:, :1]), 1))


def digits(size: int, seed: int) -> Batches:
    """Real handwritten digits: patches float32[B, 16, 4], classes int64[B]."""
    patches, classes = _digits()
    random = torch.Generator().manual_seed(seed)
    while True:
        chosen = torch.randint(len(classes), (size,), generator=random)
        yield patches[chosen], classes[chosen]


SOURCES: dict[str, Source] = {
    "markov": markov,
    "text": text,
    "masked": masked,
    "independent": independent,
    "copy": copy,
    "digits": digits,
}


def _shifted(window: Tensor) -> Batch:
    return window[:, :-1], window[:, 1:]


def _windows(size: int, seed: int) -> Iterator[Tensor]:
    data = _text()
    random = torch.Generator().manual_seed(seed)
    while True:
        starts = torch.randint(len(data) - LENGTH, (size, 1), generator=random)
        yield data[starts + torch.arange(LENGTH + 1)].long()


@cache
def _text() -> Tensor:
    return read_text()


@cache
def _digits() -> Batch:
    try:
        from sklearn.datasets import load_digits
    except ModuleNotFoundError:
        raise ValueError("the images of digits come with scikit-learn: pip install scikit-learn") from None

    found = load_digits()
    images = torch.tensor(found.data, dtype=torch.float32).view(-1, 8 // PATCH, PATCH, 8 // PATCH, PATCH) / 16
    return images.transpose(2, 3).flatten(3).flatten(1, 2), torch.tensor(found.target, dtype=torch.int64)
