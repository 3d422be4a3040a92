"""Trains a scenario with stabmon beside it, and keeps the run log: judging comes later, and may come again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from stabmon.bench.detection.data import IGNORED, SOURCES, VOCABULARY, Batch, Batches
from stabmon.bench.detection.faults import Loop
from stabmon.bench.detection.networks import Network
from stabmon.bench.detection.optimizers import OPTIMIZERS
from stabmon.bench.detection.scenarios import Scenario, run_name
from stabmon.monitor import Monitor
from stabmon.runlog import path_of

EVERY = 10
"""Steps between readings, of the output change too, after the first 50."""


def run_log(scenario: Scenario, seed: int, folder: Path) -> Path:
    """Where the run is kept."""
    return path_of(folder / scenario.family, run_name(scenario.name, seed))


def record(scenario: Scenario, seed: int, folder: Path) -> Path:
    """Train it, and return its run log."""
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    model = Network(scenario.shape, VOCABULARY[scenario.data], patches=scenario.data == "digits")
    optimizer = OPTIMIZERS[scenario.optimizer](model, scenario.lr)
    random = torch.Generator().manual_seed(seed + 2_000_000)
    loop = Loop(model, optimizer, VOCABULARY[scenario.data], random)
    path = run_log(scenario, seed, folder)
    path.unlink(missing_ok=True)
    losses = _train(scenario, loop, SOURCES[scenario.data](scenario.batch, seed))
    with ExitStack() as stack:
        monitor = stack.enter_context(_monitor(scenario, loop, path, 0))
        for step, (loss, targets) in enumerate(losses, 1):
            monitor.step(loss, targets=targets)
            if step == scenario.resume_at:
                monitor.close()
                monitor = stack.enter_context(_monitor(scenario, loop, path, step))
    return path


def _monitor(scenario: Scenario, loop: Loop, path: Path, start_step: int) -> Monitor:
    return Monitor(
        loop.model,
        loop.optimizer,
        detectors=(),
        start_step=start_step,
        run=path.stem,
        folder=path.parent,
        serve=False,
        every=EVERY,
        probe_every=EVERY,
        level=scenario.level,
    )


def _train(scenario: Scenario, loop: Loop, batches: Batches) -> Iterator[tuple[Tensor, Tensor]]:
    """(loss, targets) after each step."""
    for step in range(1, scenario.steps + 1):
        batch = _joined([next(batches) for _ in range(loop.pieces)])
        if scenario.fault:
            batch = scenario.fault.strike(step, loop, batch)
        for group in loop.optimizer.param_groups:
            group["lr"] = scenario.lr * _schedule(scenario, step) * loop.rate
        inputs, targets = batch
        logits = loop.model(inputs)
        loss = F.cross_entropy(logits.flatten(0, -2), targets.flatten(), ignore_index=IGNORED)
        loss.backward()
        loop.optimizer.step()
        yield loss.detach(), targets
        if loop.zero_grad:
            loop.optimizer.zero_grad()


def _schedule(scenario: Scenario, step: int) -> float:
    warm = min(1.0, step / max(1, scenario.warmup))
    return warm * (0.1 if scenario.drop_at and step >= scenario.drop_at else 1.0)


def _joined(batches: list[Batch]) -> Batch:
    inputs, targets = zip(*batches, strict=True)
    return torch.cat(inputs), torch.cat(targets)
