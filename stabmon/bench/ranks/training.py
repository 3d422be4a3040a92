"""The same few steps over several processes and in one: what stabmon reads in both, and what it sends."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, distributed, nn
from torch.profiler import ProfilerActivity, profile

from stabmon.bench.ranks.modes import Mode
from stabmon.bench.ranks.network import Network, batch, loss_of
from stabmon.monitor import Monitor
from stabmon.records import Snapshot

STEPS, EVERY, DENSE = 5, 2, 2
SAMPLED = [step for step in range(1, STEPS + 1) if step <= DENSE or step % EVERY == 0]
COUNTED = {"sampled": 4, "other": 5}
"""Steps whose collectives are counted: to record a step takes longer than to train it."""
_COLLECTIVE = ("c10d::", "_c10d_functional::")

Values = dict[tuple[str, str], list[float]]
"""(statistic, site) -> its value in each step."""


@dataclass
class Outcome:
    """Of one rank."""

    values: Values
    """Empty on other ranks than 0."""
    parameters: list[np.ndarray[Any, Any]]
    collectives: dict[int, int]
    """In each counted step, the whole of it: forward, backward, update and `monitor.step`."""
    alone: dict[int, int]
    """The same in a training without stabmon."""
    identical: bool
    """Whether that training ended with the same parameters, bit for bit."""


class Keep:
    """A sink that keeps the snapshots."""

    name = "keep"

    def __init__(self) -> None:
        self.snapshots: list[Snapshot] = []

    def emit(self, snapshot: Snapshot, alerts: Sequence[Any], events: Sequence[Any]) -> None:
        self.snapshots.append(snapshot)

    def close(self, state: str) -> None: ...

    def values(self) -> Values:
        columns = [c for s in self.snapshots[:1] for c in s.layout.columns]
        return {column: [float(s.values[i]) for s in self.snapshots] for i, column in enumerate(columns)}


def collectives(work: profile) -> int:
    """How many the process took part in, through whatever interface."""
    names = [event.name for event in work.events() or []]
    return sum(name.startswith(_COLLECTIVE) and "wait_tensor" not in name for name in names)


def spread(mode: Mode, level: str, folder: Path) -> Outcome:
    """The training on this rank of the default process group, watched and then unwatched."""
    watched = _train(mode, {**_settings(level, folder), "folder": folder})
    unwatched = _train(mode, None)
    pairs = zip(watched.parameters, unwatched.parameters, strict=True)
    watched.alone = unwatched.collectives
    watched.identical = all(np.array_equal(a, b) for a, b in pairs)
    return watched


def _train(mode: Mode, settings: Mapping[str, Any] | None) -> Outcome:
    rank, world = distributed.get_rank(), distributed.get_world_size()
    wrapped, keep, mine = mode.wrap(Network()), Keep(), mode.mine(rank, world)
    optimizer = _optimizer(wrapped.model)
    monitor = Monitor(wrapped.model, optimizer, sinks=[keep], **settings) if settings else None
    counts = {}
    for step in range(1, STEPS + 1):
        inputs, targets = (mine(rows) for rows in batch(step))
        counting = step in COUNTED.values()
        with profile(activities=[ProfilerActivity.CPU]) if counting else nullcontext() as work:
            loss = wrapped.train(inputs.to(mode.ids), targets)
            optimizer.step()
            optimizer.zero_grad()
            if monitor:
                monitor.step(loss, targets)
        if work is not None:
            counts[step] = collectives(work)
    if monitor:
        monitor.close()
    return Outcome(keep.values(), _held(wrapped.model), counts, {}, True)


def reference(
    mode: Mode, parts: Sequence[Callable[[Tensor], Tensor]], level: str, folder: Path, wrap: Any = None
) -> Values:
    """What one process reads that takes the parts of each batch one after the other, as micro-batches."""
    network, keep = Network(), Keep()
    model: nn.Module = wrap(network).model if wrap else network
    optimizer = _optimizer(model)
    with Monitor(model, optimizer, sinks=[keep], **{**_settings(level, folder), "folder": folder}) as monitor:
        for step in range(1, STEPS + 1):
            inputs, targets = batch(step)
            losses = []
            for part in reversed(parts):  # rank 0's last: the targets of a step are taken for those of its last call
                losses.append(loss_of(model(part(inputs).to(mode.ids)), part(targets)) / len(parts))
                losses[-1].backward()
            optimizer.step()
            optimizer.zero_grad()
            monitor.step(torch.stack([loss.detach() for loss in losses]).sum(), parts[0](targets))
    return keep.values()


def _settings(level: str, folder: Path) -> dict[str, Any]:
    return {"level": level, "every": EVERY, "probe_every": EVERY, "dense_steps": DENSE, "serve": False, "log": False}


def _optimizer(model: nn.Module) -> torch.optim.Optimizer:
    # An epsilon that is large beside rounding: Adam's first step would otherwise be the sign of what is 0.
    return torch.optim.AdamW(model.parameters(), lr=1e-2, eps=1e-3)


def _held(model: nn.Module) -> list[np.ndarray[Any, Any]]:
    held = (getattr(p.detach(), "_local_tensor", p.detach()) for p in model.parameters())
    return [p.float().numpy().copy() for p in held]
