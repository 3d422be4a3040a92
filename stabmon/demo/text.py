"""Real text that every machine has: the source of its own Python. Shapes: B windows, T bytes."""

from __future__ import annotations

import sysconfig
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor

VOCABULARY = 256
WINDOWS, LENGTH = 16, 64


def read_text() -> Tensor:
    """uint8[n]: the source files at the top of this Python's standard library, in order of their names."""
    folder = Path(sysconfig.get_paths()["stdlib"])
    data = b"".join(file.read_bytes() for file in sorted(folder.glob("*.py")))
    if len(data) < 100_000:
        raise ValueError(
            f"no source text in {folder}: the demo trains on the standard library's *.py files; "
            "use a Python that has them"
        )
    return torch.frombuffer(bytearray(data), dtype=torch.uint8)


def entropies(text: Tensor) -> tuple[float, float]:
    """(unigram, bigram) entropy in nats: the loss of a model that sees no byte before, or just one."""
    tokens = text.long()
    pairs = torch.bincount(tokens[:-1] * VOCABULARY + tokens[1:], minlength=VOCABULARY**2).double()
    return _entropy(torch.bincount(tokens).double()), _entropy(pairs) - _entropy(pairs.view(VOCABULARY, -1).sum(1))


def _entropy(counts: Tensor) -> float:
    p = counts[counts > 0] / counts.sum()
    return float(-(p * p.log()).sum())


def batches(text: Tensor, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Endless (inputs, targets), int64[B, T] each: random windows, from a generator of its own."""
    generator = torch.Generator().manual_seed(seed)
    offsets = torch.arange(LENGTH + 1)
    while True:
        starts = torch.randint(len(text) - LENGTH, (WINDOWS, 1), generator=generator)
        window = text[starts + offsets].long()
        yield window[:, :-1], window[:, 1:]
