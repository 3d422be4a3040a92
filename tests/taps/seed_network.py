"""A six-layer, single-head encoder at initialisation, both norm placements, for checks against published numbers."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

WIDTH, LENGTH, VOCABULARY, BATCH = 512, 32, 1000, 8


class Block(nn.Module):
    def __init__(self, pre: bool) -> None:
        super().__init__()
        self.pre = pre
        self.query, self.key, self.value = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)
        self.attention_norm, self.ffn_norm = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        for linear in (self.query, self.key, self.value, self.up, self.down):
            nn.init.xavier_normal_(linear.weight)
            nn.init.zeros_(linear.bias)

    def attention(self, x: Tensor) -> Tensor:
        weights = self.query(x) @ self.key(x).transpose(1, 2) / WIDTH**0.5
        return weights.softmax(-1) @ self.value(x)

    def ffn(self, x: Tensor) -> Tensor:
        return self.down(F.relu(self.up(x)))

    def forward(self, x: Tensor) -> Tensor:
        if self.pre:
            x = x + self.attention(self.attention_norm(x))
            return x + self.ffn(self.ffn_norm(x))
        x = self.attention_norm(x + self.attention(x))
        return self.ffn_norm(x + self.ffn(x))


class Network(nn.Module):
    """Embedding N(0, 1/d) times sqrt(d), tied head, a final norm for Pre-LN only."""

    def __init__(self, pre: bool, layers: int = 6) -> None:
        super().__init__()
        self.embedding = nn.Parameter(torch.randn(VOCABULARY, WIDTH) / WIDTH**0.5)
        self.blocks = nn.ModuleList(Block(pre) for _ in range(layers))
        self.final = nn.LayerNorm(WIDTH) if pre else nn.Identity()

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding[tokens] * WIDTH**0.5
        for block in self.blocks:
            x = block(x)
        return self.final(x) @ self.embedding.T


def batch() -> tuple[Tensor, Tensor]:
    """Random tokens, and the next number as the target of each."""
    tokens = torch.randint(VOCABULARY, (BATCH, LENGTH))
    return tokens, (tokens + 1) % VOCABULARY
