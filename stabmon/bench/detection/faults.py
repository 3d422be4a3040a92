"""What is done to a training: each fault is one object that is shown every step and every batch.

A fault that goes on for good has no end; `at` is the first step (from 1) that it touches.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from stabmon.bench.detection.data import Batch
from stabmon.bench.detection.networks import Network


@dataclass(slots=True)
class Loop:
    """What a fault may lay hands on."""

    model: Network
    optimizer: Optimizer
    vocabulary: int
    random: torch.Generator
    rate: float = 1.0
    """Multiplies the scheduled learning rate of this step."""
    zero_grad: bool = True
    pieces: int = 1
    """Batches of the source that make the next step's."""
    kept: dict[str, Tensor] = field(default_factory=dict)
    """What a fault remembers from step to step."""


class Fault(Protocol):
    """`at`: the first step that it touches."""

    at: int

    def strike(self, step: int, loop: Loop, batch: Batch) -> Batch:
        """Before the step is taken; returns the batch to train on."""
        ...


@dataclass(frozen=True, slots=True)
class Rate:
    """The learning rate times `times`, growing by `growth` a step, for `steps` (0: for good)."""

    at: int
    times: float = 1.0
    growth: float = 1.0
    steps: int = 0

    def strike(self, step: int, loop: Loop, batch: Batch) -> Batch:
        lasts = step >= self.at and (not self.steps or step < self.at + self.steps)
        loop.rate = self.times * self.growth ** (step - self.at + 1) if lasts else 1.0
        return batch


@dataclass(frozen=True, slots=True)
class Sharper:
    """Attention logits grow by `growth` a step."""

    at: int
    growth: float

    def strike(self, step: int, loop: Loop, batch: Batch) -> Batch:
        if step >= self.at:
            for block in loop.model.blocks:
                block.attention.scale *= self.growth  # type: ignore[union-attr, operator]
        return batch


@dataclass(frozen=True, slots=True)
class ShuffledLabels:
    """Targets no longer belong to their inputs."""

    at: int

    def strike(self, step: int, loop: Loop, batch: Batch) -> Batch:
        inputs, targets = batch
        if step < self.at:
            return batch
        order = torch.randperm(targets.numel(), generator=loop.random)
        return inputs, targets.flatten()[order].view_as(targets)


@dataclass(frozen=True, slots=True)
class OtherTokenizer:
    """Every id stands for another token: inputs and targets are renamed alike."""

    at: int

    def strike(self, step: int, loop: Loop, batch: Batch) -> Batch:
        if step < self.at:
            return batch
        if "names" not in loop.kept:
            loop.kept["names"] = torch.randperm(loop.vocabulary, generator=loop.random)
        names = loop.kept["names"]
        return names[batch[0]], names[batch[1]]


@dataclass(frozen=True, slots=True)
class SameBatch:
    """The loader hands out one batch for ever."""

    at: int

    def strike(self, step: int, loop: Loop, batch: Batch) -> Batch:
        if step < self.at:
            return batch
        if step == self.at:
            loop.kept["inputs"], loop.kept["targets"] = batch
        return loop.kept["inputs"], loop.kept["targets"]


@dataclass(frozen=True, slots=True)
class OddBatch:
    """A few batches of one token, or (`period` > 1) of repeated n-grams."""

    at: int
    period: int = 1
    steps: int = 1

    def strike(self, step: int, loop: Loop, batch: Batch) -> Batch:
        if not self.at <= step < self.at + self.steps:
            return batch
        length = batch[0].shape[1]
        gram = torch.randint(loop.vocabulary, (self.period,), generator=loop.random)
        row = gram.repeat(length // self.period + 2)[: length + 1].expand(len(batch[0]), -1)
        return row[:, :-1], row[:, 1:]


@dataclass(frozen=True, slots=True)
class FrozenBlock:
    """One block gets its gradients, but the optimizer does not have its weights."""

    number: int
    at: int = 1

    def strike(self, step: int, loop: Loop, batch: Batch) -> Batch:
        if step == self.at:
            block = loop.model.blocks[self.number]
            assert isinstance(block, nn.Module)
            mine = {id(p) for p in block.parameters()}
            for group in loop.optimizer.param_groups:
                group["params"] = [p for p in group["params"] if id(p) not in mine]
        return batch


@dataclass(frozen=True, slots=True)
class KeptGradients:
    """zero_grad is not called any more."""

    at: int = 1

    def strike(self, step: int, loop: Loop, batch: Batch) -> Batch:
        loop.zero_grad = step < self.at
        return batch


@dataclass(frozen=True, slots=True)
class LargerBatch:
    """No fault: twice as many windows a step."""

    at: int

    def strike(self, step: int, loop: Loop, batch: Batch) -> Batch:
        loop.pieces = 2 if step + 1 >= self.at else 1
        return batch
