"""One small training, for tests of how it is watched: the network, its batches, a sink that keeps everything."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader

from stabmon.records import Event, Snapshot

VOCABULARY, LENGTH, BATCH, STEPS = 32, 8, 4, 5
RATE, CLIP = 1e-2, 0.1

Batch = dict[str, Tensor]


class Network(nn.Module):
    """A Pre-LN language model of two blocks, with its loss inside."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding = nn.Embedding(VOCABULARY, 16)
        layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=dropout, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, norm=nn.LayerNorm(16), enable_nested_tensor=False)
        self.head = nn.Linear(16, VOCABULARY)

    def forward(self, input_ids: Tensor, labels: Tensor) -> Batch:
        logits = self.head(self.encoder(self.embedding(input_ids)))
        return {"loss": F.cross_entropy(logits.flatten(0, 1), labels.flatten()), "logits": logits}


class Keep:
    """A sink that keeps what it is given."""

    name = "keep"

    def __init__(self) -> None:
        self.snapshots: list[Snapshot] = []
        self.events: list[Event] = []
        self.state: str | None = None

    def emit(self, snapshot: Snapshot, alerts: Sequence[Any], events: Sequence[Event]) -> None:
        self.snapshots.append(snapshot)
        self.events += events

    def close(self, state: str) -> None:
        self.state = state


def rows(count: int = BATCH * STEPS) -> list[Batch]:
    """Random tokens, and the token that follows each."""
    tokens = torch.randint(VOCABULARY, (count, LENGTH + 1), generator=torch.Generator().manual_seed(1))
    return [{"input_ids": row[:-1], "labels": row[1:]} for row in tokens]


def loader(batch: int = BATCH, count: int = BATCH * STEPS) -> DataLoader[Batch]:
    return DataLoader(rows(count), batch_size=batch)  # type: ignore[arg-type]  # a list is a data set


def adamw(network: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(network.parameters(), lr=RATE)


def watched(folder: Path, sink: Keep) -> dict[str, Any]:
    """Settings of a run in a test."""
    return {"folder": folder / "runs", "serve": False, "sinks": [sink]}
