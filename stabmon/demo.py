"""`stabmon demo`: a small transformer, real text that every machine has, a stall and its alert.

Shapes: B windows, T bytes, D features, V = 256.
"""

from __future__ import annotations

import math
import sysconfig
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

VOCABULARY = 256
WIDTH, HEADS, LAYERS = 128, 4, 8
WINDOWS, LENGTH = 16, 64
PATIENCE = 100
OPTIMIZERS = ("adam", "adamw", "sgd")
PLACEMENTS = ("post", "pre")


@dataclass(frozen=True, slots=True)
class Plan:
    """What to train, and how. Raises ValueError on what cannot be trained."""

    placement: str = "post"
    lr: float = 1e-3
    warmup: int = 0
    steps: int = 300
    optimizer: str = "adam"
    seed: int = 0
    device: str = "cpu"

    def __post_init__(self) -> None:
        for name, value, allowed in (
            ("placement", self.placement, PLACEMENTS),
            ("optimizer", self.optimizer, OPTIMIZERS),
        ):
            if value not in allowed:
                raise ValueError(f"{name} is {value!r}; choose one of {', '.join(allowed)}")
        if not (math.isfinite(self.lr) and self.lr > 0):
            raise ValueError(f"lr is {self.lr}; give a finite number above 0, such as 1e-3")
        if self.steps < 1:
            raise ValueError(f"steps is {self.steps}; give at least 1")
        if self.warmup < 0:
            raise ValueError(f"warmup is {self.warmup}; give the number of warm-up steps, 0 for none")
        try:
            torch.empty(0, device=self.device)
        except (RuntimeError, AssertionError) as error:
            reason = str(error).splitlines()[0]
            raise ValueError(f"device is {self.device!r}, which torch cannot use ({reason}); try cpu") from None


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


def make_optimizer(name: str, model: nn.Module, lr: float) -> torch.optim.Optimizer:
    """Adam and AdamW with betas (0.9, 0.98), SGD with momentum 0.9."""
    if name == "sgd":
        return torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
    adam = torch.optim.Adam if name == "adam" else torch.optim.AdamW
    return adam(model.parameters(), lr=lr, betas=(0.9, 0.98))


def patience(losses: Sequence[float], wait: int = PATIENCE) -> int | None:
    """The step (from 1) at which `wait` steps had passed without a new best loss; None if that never came."""
    best, since = math.inf, 0
    for step, loss in enumerate(losses, 1):
        if loss < best:
            best, since = loss, step
        elif step - since >= wait:
            return step
    return None
