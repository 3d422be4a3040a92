"""One short training, watched or not, and everything that it leaves behind."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, distributed, nn
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from stabmon.bench.identity.ways import Way
from stabmon.bench.ranks.network import Network, batch, loss_of
from stabmon.monitor import Monitor

STEPS = 6
LEVELS = ("light", "standard", "deep")


@dataclass(frozen=True, slots=True)
class Left:
    """What a training left: a digest of every tensor and state by its name, and how many steps its optimizer took."""

    digests: Mapping[str, str]
    steps: int

    def differences(self, other: Left) -> list[str]:
        """Names of what is not equal bit for bit."""
        names = self.digests.keys() | other.digests.keys()
        return sorted(name for name in names if self.digests.get(name) != other.digests.get(name))


class _Counted:
    def __init__(self, optimizer: Optimizer) -> None:
        self.steps = 0
        optimizer.register_step_post_hook(self._step)

    def _step(self, *_: Any) -> None:
        self.steps += 1


def train(way: Way, level: str | None) -> Left:
    """`level`: None = not watched; else everything that it reads is read in every step."""
    torch._dynamo.reset()
    random.seed(0)
    np.random.seed(0)
    model = way.prepare(Network(way.dropout))
    torch.manual_seed(1)
    optimizer = way.optimizer([p for p in model.parameters() if p.requires_grad])
    counted = _Counted(optimizer)
    watched: AbstractContextManager[Monitor | None] = nullcontext()
    if level is not None:
        watched = Monitor(model, optimizer, serve=False, log=False, every=1, probe_every=1, level=level)
    average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9)) if way.average else None
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**20, enabled=way.scaled)
    with watched as monitor:
        for step in range(STEPS):
            loss = _step(way, model, optimizer, scaler, step)
            if average is not None:
                average.update_parameters(model)
            if monitor is not None:
                monitor.step(loss)
            if way.evaluate and step % 2:
                _evaluate(model, step)
    return Left(dict(_digests(model, optimizer, average)), counted.steps)


def _step(way: Way, model: nn.Module, optimizer: Optimizer, scaler: torch.amp.GradScaler, step: int) -> Tensor:
    def backward() -> Tensor:
        optimizer.zero_grad()
        loss = torch.zeros(())
        for x, y in _batches(way, step):
            with torch.autocast("cpu", way.autocast, enabled=way.autocast is not None):
                part = loss_of(model(x), y) / way.micro
            scaler.scale(part).backward()
            loss = loss + part.detach()
        return loss

    if isinstance(optimizer, torch.optim.LBFGS):
        loss: Tensor = optimizer.step(backward)
        return loss
    loss = backward()
    if way.clip:
        nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    scaler.step(optimizer)
    scaler.update()
    return loss


def _batches(way: Way, step: int) -> Iterator[tuple[Tensor, Tensor]]:
    rank = distributed.get_rank() if way.ranks > 1 else 0
    x, y = (rows[rank :: way.ranks] for rows in batch(step))
    yield from zip(x.chunk(way.micro), y.chunk(way.micro), strict=True)


def _evaluate(model: nn.Module, step: int) -> None:
    model.eval()
    with torch.no_grad():
        model(batch(100 + step)[0])
    model.train()


def _digests(model: nn.Module, optimizer: Optimizer, average: nn.Module | None) -> Iterator[tuple[str, str]]:
    for name, tensor in model.state_dict().items():
        yield f"weights {name}", _digest(tensor)
    for name, tensor in {} if average is None else average.state_dict().items():
        yield f"average {name}", _digest(tensor)
    for number, state in enumerate(optimizer.state.values()):
        for name, value in state.items():
            yield f"optimizer {number} {name}", _digest(value)
    yield "random state of torch", _digest(torch.get_rng_state())
    yield "random state of numpy", _digest(repr(np.random.get_state(legacy=False)))
    yield "random state of python", _digest(random.getstate())


def _digest(value: Any) -> str:
    if isinstance(value, DTensor):
        value = value.to_local()
    if isinstance(value, Tensor):
        whole = value.detach().contiguous().reshape(-1).view(torch.uint8)
        return hashlib.sha256(whole.numpy().tobytes()).hexdigest()
    if isinstance(value, list | tuple):
        return hashlib.sha256(" ".join(_digest(item) for item in value).encode()).hexdigest()
    return repr(value)
