"""A small Pre-LN language model that can be cut in every direction, and its batches."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

VOCABULARY, LENGTH, WIDTH, HEAD, BLOCKS, ROWS = 32, 16, 32, 8, 4, 8


class Attention(nn.Module):
    """Causal; as many heads as `q` has columns for, so that it may be split by heads."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (part(x).unflatten(-1, (-1, HEAD)).transpose(1, 2) for part in (self.q, self.k, self.v))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        out: Tensor = self.o(mixed.transpose(1, 2).flatten(2))
        return out


class Mlp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.down(F.gelu(self.up(x)))
        return out


class Block(nn.Module):
    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.ln_1, self.attn = nn.LayerNorm(WIDTH), Attention()
        self.ln_2, self.mlp = nn.LayerNorm(WIDTH), Mlp()
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.dropout(self.attn(self.ln_1(x)))
        out: Tensor = x + self.dropout(self.mlp(self.ln_2(x)))
        return out


class Network(nn.Module):
    """Token ids [B, T], of any dtype -> logits [B, T, V]. `keep` leaves a stage of it, under the names of the whole."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding: nn.Embedding | None = nn.Embedding(VOCABULARY, WIDTH)
        self.blocks = nn.ModuleList(Block(dropout) for _ in range(BLOCKS))
        self.ln_f: nn.LayerNorm | None = nn.LayerNorm(WIDTH)
        self.head: nn.Linear | None = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def keep(self, stage: int, stages: int) -> Network:
        """The same network without what other stages have."""
        size = BLOCKS // stages
        for i in range(BLOCKS):
            if i // size != stage:
                self.blocks[i] = nn.Identity()
        if stage > 0:
            self.embedding = None
        if stage < stages - 1:
            self.ln_f = self.head = None
        return self

    def forward(self, x: Tensor) -> Tensor:
        if self.embedding is not None:
            x = self.embedding(x.long())
        for block in self.blocks:
            x = block(x)
        if self.ln_f is not None and self.head is not None:
            x = self.head(self.ln_f(x))
        return x


def loss_of(logits: Tensor, targets: Tensor) -> Tensor:
    """Cross entropy, mean over tokens."""
    return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


def batch(step: int) -> tuple[Tensor, Tensor]:
    """Inputs and targets of a step, both int64[ROWS, LENGTH]: a noisy count upwards."""
    generator = torch.Generator().manual_seed(step)
    start = torch.randint(VOCABULARY, (ROWS, 1), generator=generator)
    noise = torch.randint(3, (ROWS, LENGTH + 1), generator=generator)
    tokens = (start + torch.arange(LENGTH + 1) + noise) % VOCABULARY
    return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()
