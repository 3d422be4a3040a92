"""The same training in five frameworks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from accelerate import Accelerator
from lightning.fabric import Fabric
from torch import Tensor, nn
from torch.utils.data import Sampler, SequentialSampler
from transformers import Trainer, TrainingArguments

from stabmon import Monitor, huggingface, lightning
from tests.trainings import BATCH, CLIP, STEPS, Batch, Keep, Network, adamw, loader, rows, watched


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
