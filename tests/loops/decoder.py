"""A small Pre-LN language model that can be checkpointed, tied, frozen in parts; and its batches."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

VOCABULARY, WIDTH, LENGTH, BATCH = 32, 16, 12, 4


class Block(nn.Module):
    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = self.qkv(self.ln_1(x)).chunk(3, -1)
        x = x + self.dropout(self.out(F.scaled_dot_product_attention(query, key, value, is_causal=True)))
        return x + self.dropout(self.down(F.gelu(self.up(self.ln_2(x)))))


class Decoder(nn.Module):
    """Logits [B, T, V] of tokens [B, T]. `reentrant`: the kind of activation checkpointing, None = none."""

    reads_tokens = True

    def __init__(self, dropout: float = 0.1, reentrant: bool | None = None, tied: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.blocks = nn.ModuleList(Block(dropout) for _ in range(2))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        if tied:
            self.head.weight = self.embedding.weight
        self.reentrant = reentrant

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x) if self.reentrant is None else checkpoint(block, x, use_reentrant=self.reentrant)
        logits: Tensor = self.head(self.norm(x))
        return logits


def batches(steps: int, ragged: bool = False) -> Iterator[tuple[Tensor, Tensor]]:
    """(inputs, targets), both [B, T]; `ragged`: another T each time."""
    generator = torch.Generator().manual_seed(1)
    for step in range(steps):
        length = LENGTH - 3 * (step % 3) if ragged else LENGTH
        tokens = torch.randint(VOCABULARY, (BATCH, length + 1), generator=generator)
        yield tokens[:, :-1], tokens[:, 1:]


def loss_of(model: nn.Module, inputs: Tensor, targets: Tensor, reduction: str = "mean") -> Tensor:
    logits = model(inputs)
    return F.cross_entropy(logits.float().flatten(0, 1), targets.flatten(), reduction=reduction)
