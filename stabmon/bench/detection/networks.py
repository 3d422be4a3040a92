"""The transformer of the scenarios: decoder, encoder or ViT, with its norms wherever they have been put.

Shapes: B windows, T places, D features, V outputs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from stabmon.bench.detection.data import LENGTH, PATCH

Placement = Literal["pre", "post", "deepnorm", "peri", "scaled"]
"""`scaled`: Pre-LN with each norm's output divided by sqrt(its layer, from 1) (LayerNorm scaling, Sun 2025)."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What to build; the last ones are faults of implementation."""

    placement: Placement = "post"
    layers: int = 6
    width: int = 64
    fused: bool = False
    """Queries, keys and values by one matrix: Xavier then gives them a smaller scale."""
    qk_norm: bool = False
    init: Literal["xavier", "gpt2"] = "xavier"
    causal: bool = True
    final_norm: bool = True
    residual: bool = True
    init_scale: float = 1.0


HEADS = 4


class Attention(nn.Module):
    """`scale` multiplies the logits; it is 1 unless a fault turns it up."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        width = shape.width
        # The layer that [...] * 0 makes and throws away draws random numbers: without it each seed is another training.
        self.qkv = nn.ModuleList([nn.Linear(width, 3 * width)] if shape.fused else [nn.Linear(width, width)] * 0)
        if not shape.fused:
            self.qkv.extend(nn.Linear(width, width) for _ in range(3))
        self.norms = nn.ModuleList(nn.LayerNorm(width // HEADS) for _ in range(2 if shape.qk_norm else 0))
        self.out = nn.Linear(width, width)
        self.causal, self.scale = shape.causal, 1.0

    def forward(self, x_BTD: Tensor) -> Tensor:
        joined = torch.cat([project(x_BTD) for project in self.qkv], -1)
        q, k, v = (part.unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in joined.chunk(3, -1))
        if len(self.norms):
            q, k = self.norms[0](q), self.norms[1](k)
        mixed = F.scaled_dot_product_attention(
            q, k, v, is_causal=self.causal, scale=self.scale / math.sqrt(q.shape[-1])
        )
        y_BTD: Tensor = self.out(mixed.transpose(1, 2).flatten(-2))
        return y_BTD


class Block(nn.Module):
    """Attention and feed-forward."""

    def __init__(self, shape: Shape, number: int) -> None:
        super().__init__()
        self.placement, self.keep = shape.placement, float(shape.residual)
        self.alpha = (2 * shape.layers) ** 0.25 if shape.placement == "deepnorm" else 1.0
        self.shrink = 1 / math.sqrt(number) if shape.placement == "scaled" else 1.0
        self.norm_1, self.norm_2 = nn.LayerNorm(shape.width), nn.LayerNorm(shape.width)
        after = 2 if shape.placement == "peri" else 0
        self.after = nn.ModuleList(nn.LayerNorm(shape.width) for _ in range(after))
        self.attention = Attention(shape)
        self.mlp = nn.Sequential(
            nn.Linear(shape.width, 4 * shape.width), nn.ReLU(), nn.Linear(4 * shape.width, shape.width)
        )

    def forward(self, x_BTD: Tensor) -> Tensor:
        for index, (norm, branch) in enumerate(((self.norm_1, self.attention), (self.norm_2, self.mlp))):
            if self.placement in ("post", "deepnorm"):
                x_BTD = norm(self.alpha * self.keep * x_BTD + branch(x_BTD))
                continue
            y_BTD = branch(self.shrink * norm(x_BTD))
            x_BTD = self.keep * x_BTD + (self.after[index](y_BTD) if len(self.after) else y_BTD)
        return x_BTD


class Network(nn.Module):
    """int64[B, T] -> logits [B, T, V]; with `patches`, float32[B, T, PATCH^2] -> logits [B, V]."""

    def __init__(self, shape: Shape, outputs: int, patches: bool = False) -> None:
        super().__init__()
        self.patches = patches
        self.embed = nn.Linear(PATCH**2, shape.width) if patches else nn.Embedding(outputs, shape.width)
        self.position = nn.Embedding(LENGTH, shape.width)
        self.blocks = nn.Sequential(*(Block(shape, number) for number in range(1, shape.layers + 1)))
        final = shape.final_norm and shape.placement not in ("post", "deepnorm")
        self.norm = nn.LayerNorm(shape.width) if final else nn.Identity()
        self.head = nn.Linear(shape.width, outputs)
        self._initialise(shape)

    def forward(self, inputs: Tensor) -> Tensor:
        x_BTD = self.embed(inputs) + self.position.weight[: inputs.shape[1]]
        x_BTD = self.norm(self.blocks(x_BTD))
        logits: Tensor = self.head(x_BTD.mean(1) if self.patches else x_BTD)
        return logits

    def _initialise(self, shape: Shape) -> None:
        for name, parameter in self.named_parameters():
            if name.endswith("bias"):
                nn.init.zeros_(parameter)
            elif parameter.dim() > 1:
                if shape.init == "gpt2":
                    nn.init.normal_(parameter, std=0.02)
                else:
                    nn.init.xavier_uniform_(parameter)
                with torch.no_grad():
                    parameter.mul_(shape.init_scale)
        if shape.placement == "deepnorm":
            self._shrink_branches((8 * shape.layers) ** -0.25)

    @torch.no_grad()
    def _shrink_branches(self, beta: float) -> None:
        """DeepNorm's beta: values, attention output and feed-forward start smaller (Wang 2022)."""
        for block in self.blocks:
            assert isinstance(block, Block)
            for module in (block.attention.out, *block.mlp):
                if isinstance(module, nn.Linear):
                    module.weight.mul_(beta)
            _values(block.attention).mul_(beta)


def _values(attention: Attention) -> Tensor:
    """The rows of the matrix that makes the values."""
    last = attention.qkv[-1].weight
    assert isinstance(last, Tensor)
    return last if len(attention.qkv) == 3 else last[2 * len(last) // 3 :]
