"""The same training in five frameworks: one small network, its batches, and a loop in each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from accelerate import Accelerator
from lightning.fabric import Fabric
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Sampler, SequentialSampler
from transformers import Trainer, TrainingArguments

from stabmon import Monitor, huggingface, lightning
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


def in_plain_loop(network: Network, folder: Path, sink: Keep | None) -> None:
    optimizer = adamw(network)
    monitor = Monitor(network, optimizer, **watched(folder, sink)) if sink else None
    for batch in loader():
        loss = network(**batch)["loss"]
        loss.backward()
        nn.utils.clip_grad_norm_(network.parameters(), CLIP)
        optimizer.step()
        optimizer.zero_grad()
        if monitor:
            monitor.step(loss)
    if monitor:
        monitor.close()


class InOrder(Trainer):  # type: ignore[misc]  # transformers is not followed
    def _get_train_sampler(self, *_: Any) -> Sampler[int]:
        return SequentialSampler(self.train_dataset)


def in_huggingface(network: Network, folder: Path, sink: Keep | None) -> None:
    optimizer = adamw(network)
    constant = torch.optim.lr_scheduler.ConstantLR(optimizer, factor=1.0)
    arguments = TrainingArguments(
        str(folder), max_steps=STEPS, per_device_train_batch_size=BATCH, max_grad_norm=CLIP, report_to=[],
        save_strategy="no", disable_tqdm=True, use_cpu=True,
    )  # fmt: skip
    callbacks = [huggingface.StabilityCallback(**watched(folder, sink))] if sink else []
    InOrder(network, arguments, train_dataset=rows(), callbacks=callbacks, optimizers=(optimizer, constant)).train()


class Module(pl.LightningModule):  # type: ignore[misc]  # lightning is not followed
    def __init__(self, network: Network) -> None:
        super().__init__()
        self.net = network

    def training_step(self, batch: Batch, _: int) -> Tensor:
        return self.net(**batch)["loss"]

    def validation_step(self, batch: Batch, _: int) -> None:
        self.log("val_loss", self.net(**batch)["loss"])

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return adamw(self.net)


def lightning_trainer(folder: Path, *callbacks: Any, **arguments: Any) -> pl.Trainer:
    quiet = {"enable_progress_bar": False, "enable_model_summary": False, "enable_checkpointing": False}
    given = {"max_steps": STEPS, "accelerator": "cpu", "devices": 1, "logger": False, **quiet, **arguments}
    return pl.Trainer(default_root_dir=folder, callbacks=list(callbacks), **given)


def in_lightning(network: Network, folder: Path, sink: Keep | None) -> None:
    callbacks = [lightning.StabilityCallback(**watched(folder, sink))] if sink else []
    lightning_trainer(folder, *callbacks, gradient_clip_val=CLIP).fit(Module(network), loader())


def in_accelerate(network: Network, folder: Path, sink: Keep | None) -> None:
    accelerator = Accelerator(cpu=True)
    model, optimizer, data = accelerator.prepare(network, adamw(network), loader())
    monitor = Monitor(model, optimizer, **watched(folder, sink)) if sink else None
    for batch in data:
        loss = model(**batch)["loss"]
        accelerator.backward(loss)
        accelerator.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        optimizer.zero_grad()
        if monitor:
            monitor.step(loss)
    if monitor:
        monitor.close()


def in_fabric(network: Network, folder: Path, sink: Keep | None) -> None:
    fabric = Fabric(accelerator="cpu", devices=1)
    model, optimizer = fabric.setup(network, adamw(network))
    monitor = Monitor(model, optimizer, **watched(folder, sink)) if sink else None
    for batch in fabric.setup_dataloaders(loader()):
        loss = model(**batch)["loss"]
        fabric.backward(loss)
        fabric.clip_gradients(model, optimizer, max_norm=CLIP)
        optimizer.step()
        optimizer.zero_grad()
        if monitor:
            monitor.step(loss)
    if monitor:
        monitor.close()


LOOPS: dict[str, Callable[[Network, Path, Keep | None], None]] = {
    "plain": in_plain_loop,
    "huggingface": in_huggingface,
    "lightning": in_lightning,
    "accelerate": in_accelerate,
    "fabric": in_fabric,
}
