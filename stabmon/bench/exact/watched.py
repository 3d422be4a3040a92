"""The watched training: a loop as users write it, with a Monitor in it whose snapshots are kept."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from stabmon.bench.exact.plan import CLIP, SEED, Plan, schedule
from stabmon.monitor import Monitor
from stabmon.records import PART_FAILED, Event, Snapshot

Settings = Mapping[str, Any]
Train = Callable[[Plan, nn.Module, Settings], None]


class Keep:
    """A sink that keeps what it is given."""

    name = "keep"

    def __init__(self) -> None:
        self.snapshots: list[Snapshot] = []
        self.failures: list[str] = []

    def emit(self, snapshot: Snapshot, alerts: Sequence[Any], events: Sequence[Event]) -> None:
        self.snapshots.append(snapshot)
        failed = (event.detail for event in events if event.kind == PART_FAILED)
        self.failures += [f"{detail['part']} failed: {detail['error']}" for detail in failed]

    def close(self, state: str) -> None:
        pass


@dataclass
class Watched:
    """What stabmon said of a training, and what became of it."""

    snapshots: Sequence[Snapshot]
    trained: Mapping[str, Tensor]
    """Parameters and buffers after the last step."""
    failures: Sequence[str] = field(default_factory=list)


def watch(plan: Plan, train: Train) -> Watched:
    """The training of the plan by that loop, everything read in every step."""
    keep = Keep()
    model = plan.model()
    with tempfile.TemporaryDirectory() as folder:
        settings = {"folder": Path(folder), "serve": False, "log": False, "level": "deep", "sinks": [keep]}
        torch.manual_seed(SEED)
        train(plan, model, settings)
    if len(keep.snapshots) != len(plan.batches):
        raise RuntimeError(f"{len(keep.snapshots)} of {len(plan.batches)} steps were told")
    named = (*model.named_parameters(), *model.named_buffers())
    return Watched(keep.snapshots, {name: value.detach() for name, value in named}, keep.failures)


def plain(plan: Plan, model: nn.Module, settings: Settings) -> None:
    """A loop of one's own: accumulation, clipping, loss scaling and several optimizers as the plan says."""
    network = model
    optimizers = plan.optimizers(model)
    schedules = [schedule(optimizer) for optimizer in optimizers]
    scaler = plan.scaler()
    with Monitor(model, optimizers, **settings) as monitor:
        for number, batches in enumerate(plan.batches, 1):
            losses = []
            plan.rescale(scaler, number)
            for batch in batches:
                with plan.autocast():
                    loss = network(**batch)["loss"]
                scaler.scale(loss / len(batches)).backward()
                losses.append(loss.detach())
            if plan.loop.clip:
                for optimizer in optimizers:
                    scaler.unscale_(optimizer)
                nn.utils.clip_grad_norm_(model.parameters(), CLIP)
            for optimizer, slower in zip(optimizers, schedules, strict=True):
                scaler.step(optimizer)
                optimizer.zero_grad()
                slower.step()
            scaler.update()
            monitor.step(torch.stack(losses).mean())
            if plan.loop.evaluates and number == 1:
                monitor.evaluated(_evaluation(plan, model))


def _evaluation(plan: Plan, model: nn.Module) -> float:
    model.eval()
    with torch.no_grad(), plan.autocast():
        loss = model(**plan.batches[0][0])["loss"].item()
    model.train()
    return float(loss)


def compiled(plan: Plan, model: nn.Module, settings: Settings) -> None:
    """Compiled ahead of time, run by the eager kernels."""
    torch._dynamo.reset()
    network = torch.compile(model, backend="aot_eager")
    optimizers = plan.optimizers(model)
    schedules = [schedule(optimizer) for optimizer in optimizers]
    with Monitor(network, optimizers, **settings) as monitor:  # type: ignore[arg-type]  # a module, typed as a function
        for batches in plan.batches:
            (batch,) = batches
            with plan.autocast():
                loss = network(**batch)["loss"]
            loss.backward()
            for optimizer, slower in zip(optimizers, schedules, strict=True):
                optimizer.step()
                optimizer.zero_grad()
                slower.step()
            monitor.step(loss)


def checkpointed(reentrant: bool) -> Train:
    """Activations are worked out again in the backward pass."""

    def train(plan: Plan, model: Any, settings: Settings) -> None:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": reentrant})
        plain(plan, model, settings)

    return train
