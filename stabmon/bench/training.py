"""The training that is measured: a small GPT on made-up tokens. Shapes: B sequences, T tokens, D features, V ids."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from stabmon.monitor import Monitor

VOCABULARY = 256
HEAD_WIDTH = 32


@dataclass(frozen=True, slots=True)
class Size:
    """How large the training is. Raises ValueError on what cannot be trained."""

    layers: int = 2
    width: int = 256
    batch: int = 32
    length: int = 128
    device: str = "cpu"

    def __post_init__(self) -> None:
        for name in ("layers", "width", "batch", "length"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; give at least 1")
        if self.width % HEAD_WIDTH:
            raise ValueError(f"width is {self.width}; give a multiple of {HEAD_WIDTH}, the width of an attention head")
        try:
            torch.empty(0, device=self.device)
        except (RuntimeError, AssertionError) as error:
            reason = str(error).splitlines()[0]
            raise ValueError(f"device is {self.device!r}, which torch cannot use ({reason}); try cpu") from None


class Network(nn.Module):
    """Pre-LN causal language model: int64[B, T] -> logits [B, T, V]."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.token, self.position = nn.Embedding(VOCABULARY, size.width), nn.Embedding(size.length, size.width)
        block = nn.TransformerEncoderLayer(
            size.width, size.width // HEAD_WIDTH, 4 * size.width, 0.0, "gelu", batch_first=True, norm_first=True
        )
        self.blocks = nn.TransformerEncoder(block, size.layers, nn.LayerNorm(size.width), enable_nested_tensor=False)
        self.head = nn.Linear(size.width, VOCABULARY)
        self.mask: Tensor
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(size.length), persistent=False)

    def forward(self, tokens_BT: Tensor) -> Tensor:
        time = tokens_BT.shape[1]
        x_BTD = self.token(tokens_BT) + self.position.weight[:time]
        logits_BTV: Tensor = self.head(self.blocks(x_BTD, self.mask[:time, :time], is_causal=True))
        return logits_BTV


class Training:
    """One model and one optimizer; each step is what a user's loop does, with or without a monitor."""

    def __init__(self, size: Size, seed: int = 0) -> None:
        torch.manual_seed(seed)
        self.model = Network(size).to(size.device)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4)
        self.device = torch.device(size.device)
        self._batches = torch.randint(VOCABULARY, (8, size.batch, size.length + 1), device=size.device)
        self._steps = 0

    def step(self, monitor: Monitor | None = None) -> None:
        """One optimizer step."""
        batch = self._batches[self._steps % len(self._batches)]
        self._steps += 1
        targets = batch[:, 1:]
        loss = F.cross_entropy(self.model(batch[:, :-1]).flatten(0, 1), targets.flatten())
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        if monitor is not None:
            monitor.step(loss, targets=targets)
