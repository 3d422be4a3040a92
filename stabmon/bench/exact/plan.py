"""What is trained, how and in what precision: the same for the watched training and for its twin."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import torch
from torch import nn
from torch.amp import GradScaler
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR

from stabmon.bench.exact.families import Batch, Family

STEPS, RATE, CLIP, LENGTH, SEED = 3, 1e-2, 0.1, 12, 7
BETAS, EPSILON, DECAY = (0.9, 0.999), 1e-8, 0.1
"""AdamW's."""
OVERFLOW = 2
"""The step that a loss scaler is made to skip."""

_SCALE, _TOO_LARGE = 2.0**4, 2.0**120

Precision = Literal["fp32", "bf16 autocast", "fp16 autocast", "pure bf16"]
PRECISIONS: tuple[Precision, ...] = ("fp32", "bf16 autocast", "fp16 autocast", "pure bf16")
_HALF = {"bf16 autocast": torch.bfloat16, "fp16 autocast": torch.float16}


@dataclass(frozen=True)
class Loop:
    """How a loop trains, as far as it changes the numbers."""

    name: str
    micro_batches: int = 1
    """Of different length, and partly padding, where there are several."""
    clip: bool = False
    scaler: bool = False
    optimizers: int = 1
    counted: bool = False
    """The losses of the micro-batches are divided by the number of targets of the whole batch (transformers)."""
    compiled: bool = False
    inside: str = ""
    """What the model is called inside the module that is watched."""
    evaluates: bool = False
    """After the first step."""


@dataclass(frozen=True)
class Plan:
    """One training."""

    family: Family
    loop: Loop
    precision: Precision
    batches: Sequence[Sequence[Batch]] = field(init=False)
    """[step][micro-batch]"""

    def __post_init__(self) -> None:
        random = torch.Generator().manual_seed(SEED)
        several = self.loop.micro_batches > 1
        lengths = [LENGTH - 3 * (i % 2) for i in range(self.loop.micro_batches)]
        padded = several and self.family.padded
        made = [[self._cast(self.family.batch(random, n, padded)) for n in lengths] for _ in range(STEPS)]
        object.__setattr__(self, "batches", made)

    def _cast(self, batch: Batch) -> Batch:
        if self.precision != "pure bf16":
            return batch
        return {name: t.bfloat16() if t.is_floating_point() else t for name, t in batch.items()}

    @cached_property
    def counts(self) -> bool:
        """Whether the model takes the number of targets, and divides by it."""
        return self.loop.counted and self.family.counts

    def model(self) -> nn.Module:
        """As it is before the first step, in training mode."""
        model = self.family.make().train()
        return model.bfloat16() if self.precision == "pure bf16" else model

    def optimizers(self, model: nn.Module) -> list[Optimizer]:
        """AdamW, one or one for each half of the parameters."""
        parameters = list(model.parameters())
        parts = self.loop.optimizers
        return [torch.optim.AdamW(parameters[i::parts], RATE, BETAS, EPSILON, DECAY) for i in range(parts)]

    def autocast(self) -> AbstractContextManager[object]:
        """What the loop's forward runs in."""
        half = _HALF.get(self.precision)
        return nullcontext() if half is None else torch.autocast("cpu", dtype=half)

    def scaler(self) -> GradScaler:
        """One that does nothing where the loop has none."""
        return GradScaler("cpu", init_scale=_SCALE, enabled=self.loop.scaler)

    def rescale(self, scaler: GradScaler, step: int) -> None:
        """Before the forward: a scale at which the step overflows, or one at which it does not."""
        if self.loop.scaler and step > 1:
            scaler.update(_TOO_LARGE if step == OVERFLOW else _SCALE)


def schedule(optimizer: Optimizer) -> LambdaLR:
    """A learning rate that falls by a fifth of the first in every step."""
    return LambdaLR(optimizer, lambda step: 1 - step / 5)
