"""The transformer that the demo trains. Shapes: B windows, T bytes, D features, V byte values."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from stabmon.demo.text import LENGTH, VOCABULARY

WIDTH, HEADS, LAYERS = 128, 4, 8


class Attention(nn.Module):
    """Causal self-attention. q, k and v are apart: one fused Xavier matrix has a smaller scale and can escape."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(WIDTH, WIDTH) for _ in range(4))

    def forward(self, x_BTD: Tensor) -> Tensor:
        q, k, v = (p(x_BTD).unflatten(-1, (HEADS, -1)).transpose(1, 2) for p in (self.q, self.k, self.v))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        y_BTD: Tensor = self.out(mixed.transpose(1, 2).flatten(-2))
        return y_BTD


class Block(nn.Module):
    """Attention and feed-forward, each with its norm after ("post") or before ("pre")."""

    def __init__(self, placement: str) -> None:
        super().__init__()
        self.pre = placement == "pre"
        self.norm_1, self.norm_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention = Attention()
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.ReLU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x_BTD: Tensor) -> Tensor:
        if self.pre:
            x_BTD = x_BTD + self.attention(self.norm_1(x_BTD))
            x_BTD = x_BTD + self.mlp(self.norm_2(x_BTD))
        else:
            x_BTD = self.norm_1(x_BTD + self.attention(x_BTD))
            x_BTD = self.norm_2(x_BTD + self.mlp(x_BTD))
        return x_BTD


class Network(nn.Module):
    """Byte-level causal language model: int64[B, T] -> logits [B, T, V]. Xavier uniform matrices, zero biases."""

    def __init__(self, placement: str) -> None:
        super().__init__()
        self.token, self.position = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.Sequential(*(Block(placement) for _ in range(LAYERS)))
        self.norm = nn.LayerNorm(WIDTH) if placement == "pre" else nn.Identity()
        self.head = nn.Linear(WIDTH, VOCABULARY)
        for name, parameter in self.named_parameters():
            if parameter.dim() > 1:
                nn.init.xavier_uniform_(parameter)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)

    def forward(self, tokens_BT: Tensor) -> Tensor:
        x_BTD = self.token(tokens_BT) + self.position.weight[: tokens_BT.shape[1]]
        logits_BTV: Tensor = self.head(self.norm(self.blocks(x_BTD)))
        return logits_BTV
