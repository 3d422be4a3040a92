"""Trainings of two ranks in which something is not as it should be. Each scene returns what its rank saw."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, distributed, nn
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.nn.parallel import DistributedDataParallel

from stabmon import Monitor, meeting
from stabmon.records import Alert
from tests.alerts_at import AlertsAt
from tests.trainings import STEPS, Batch, Keep, Network, adamw, loader, watched

Seen = dict[str, Any]
READ = ("loss", "norm_gain", "grad_sq", "ranks_read", "ranks_lost", "rank_weight_spread", "rank_grad_spread")


class Heard(logging.Handler):
    """What stabmon says while it is open."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def train(
    model: nn.Module, folder: Path, settings: Mapping[str, Any] | None = None, meanwhile: Any = None, micro: int = 1
) -> Seen:
    """The small training, rank by rank its own rows; `meanwhile(step, monitor)` is called before each step."""
    rank, sink, heard = distributed.get_rank(), Keep(), Heard()
    logging.getLogger("stabmon").addHandler(heard)
    optimizer = adamw(model)
    torch.manual_seed(rank)
    given = {**watched(folder, sink), **(settings or {})}
    monitor = Monitor(model, optimizer, **given) if settings is not None else None
    for step, batch in enumerate(loader(), 1):
        if meanwhile:
            meanwhile(step, monitor)
        loss = torch.zeros(())
        for part in parts(batch, rank, micro):
            loss = model(**part)["loss"]
            (loss / micro).backward()
        optimizer.step()
        optimizer.zero_grad()
        if monitor:
            monitor.step(loss)
    if monitor:
        monitor.close()
    logging.getLogger("stabmon").removeHandler(heard)
    values = [{s: snapshot[s].tolist() for s in READ} for snapshot in sink.snapshots]
    events = [(event.kind, dict(event.detail)) for event in sink.events]
    alerts = [] if monitor is None else list(monitor.alerts)
    return {"values": values, "events": events, "said": heard.lines, "end": held(model), "alerts": alerts}


def parts(batch: Batch, rank: int, micro: int) -> list[Batch]:
    own = {name: rows[rank::2] for name, rows in batch.items()}
    return [{name: rows.chunk(micro)[i] for name, rows in own.items()} for i in range(micro)]


def held(model: nn.Module) -> list[Any]:
    return [getattr(p.detach(), "_local_tensor", p.detach()).numpy().copy() for p in model.parameters()]


def ddp(dropout: float = 0.0) -> DistributedDataParallel:
    return DistributedDataParallel(Network(dropout))


def sharded(dropout: float = 0.0) -> nn.Module:
    network = Network(dropout)
    for layer in network.encoder.layers:
        fully_shard(layer)
    return fully_shard(network)


def _fail(*args: Any) -> Tensor:
    raise RuntimeError("lost")


def a_tap_fails(folder: Path) -> Seen:
    """On rank 1, in step 3."""

    def meanwhile(step: int, monitor: Any) -> None:
        if step == 3 and distributed.get_rank() == 1:
            monitor._follower._instruments._norms.read = _fail

    return train(ddp(), folder, {}, meanwhile)


def a_part_is_lost(folder: Path) -> Seen:
    """The same of gradients that are sharded."""

    def meanwhile(step: int, monitor: Any) -> None:
        if step == 3 and distributed.get_rank() == 1:
            monitor._follower._instruments._gradients.read = _fail

    return train(sharded(), folder, {}, meanwhile)


def a_monitor_fails(folder: Path) -> Seen:
    """All of it on rank 1, in step 3."""

    def meanwhile(step: int, monitor: Any) -> None:
        if step == 3 and distributed.get_rank() == 1:
            monitor._follower._instruments.collect = _fail

    return train(ddp(), folder, {}, meanwhile)


def a_monitor_fails_at_once(folder: Path) -> Seen:
    """On rank 1, before it could agree on anything."""

    def meanwhile(step: int, monitor: Any) -> None:
        if step == 1 and distributed.get_rank() == 1:
            monitor._follower._instruments.collect = _fail

    return train(ddp(), folder, {}, meanwhile)


def one_is_disabled(folder: Path) -> Seen:
    if distributed.get_rank() == 1:
        os.environ["STABMON_DISABLED"] = "1"
    try:
        return train(ddp(), folder, {})
    finally:
        os.environ.pop("STABMON_DISABLED", None)


def settings_differ(folder: Path) -> Seen:
    every, dense = ((2, 0), (3, 1))[distributed.get_rank()]
    return train(ddp(), folder, {"every": every, "dense_steps": dense, "probe_every": 100})


def one_reacts(folder: Path) -> Seen:
    """Rank 0 has an `on_alert`, rank 1 has none."""
    told: list[Alert] = []
    reaction: dict[str, Any] = {} if distributed.get_rank() else {"on_alert": told.append}
    seen = train(ddp(), folder, {"every": 2, "detectors": [AlertsAt(2)], **reaction})
    return {**seen, "told": len(told)}


def one_has_no_monitor(folder: Path) -> Seen:
    """The last one: from then on the ranks do not mean the same Monitor."""
    patience, meeting.PATIENCE = meeting.PATIENCE, 6.0
    try:
        return train(ddp(), folder, None if distributed.get_rank() else {})
    finally:
        meeting.PATIENCE = patience


def uneven(folder: Path) -> Seen:
    """DDP's `join`: rank 1 has two steps less."""
    model, sink = ddp(), Keep()
    optimizer = adamw(model)
    monitor = Monitor(model, optimizer, **watched(folder, sink))
    with model.join():
        for batch in list(loader())[: STEPS - 2 * distributed.get_rank()]:
            loss = model(**parts(batch, distributed.get_rank(), 1)[0])["loss"]
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            monitor.step(loss)
    monitor.close()
    return {"steps": len(sink.snapshots), "loss": [s.scalar("loss") for s in sink.snapshots]}


def identity(folder: Path) -> Seen:
    """Whether dropout and accumulation end bit for bit alike with and without stabmon."""
    makes: dict[str, Callable[[float], nn.Module]] = {"ddp": ddp, "fsdp2": sharded}
    ends = {name: [train(make(0.1), folder, how, micro=2)["end"] for how in ({}, None)] for name, make in makes.items()}
    return {name: all((a == b).all() for a, b in zip(*pair, strict=True)) for name, pair in ends.items()}


def fsdp1(folder: Path) -> Seen:
    return train(FullyShardedDataParallel(Network(), device_id=torch.device("cpu")), folder, {})


def a_weight_changes(folder: Path) -> Seen:
    """On rank 1 alone, before step 3: as a damaged memory would."""
    model = ddp()

    def meanwhile(step: int, monitor: Any) -> None:
        if step == 3 and distributed.get_rank() == 1:
            with torch.no_grad():
                model.module.head.weight[0, 0] += 0.1

    return train(model, folder, {}, meanwhile)


def nothing_is_averaged(folder: Path) -> Seen:
    """Both ranks start from the same weights, and nobody has wrapped them."""
    return train(Network(), folder, {})


SCENES = (
    a_weight_changes, nothing_is_averaged, a_tap_fails, a_part_is_lost, a_monitor_fails, a_monitor_fails_at_once,
    one_is_disabled, settings_differ, one_reacts, uneven, identity, fsdp1, one_has_no_monitor,
)  # fmt: skip


def all_scenes(folder: Path) -> dict[str, Seen]:
    return {scene.__name__: scene(folder / scene.__name__) for scene in SCENES}
