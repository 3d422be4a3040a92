"""A plain training loop with everything that people put into one, as a recipe."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from tests.loops.decoder import Decoder, batches, loss_of
from tests.loops.witness import Attach, Witness

STEPS = 4
Optimizers = Callable[[nn.Module], Sequence[Optimizer]]


def adamw(model: nn.Module) -> list[Optimizer]:
    return [torch.optim.AdamW(model.parameters(), lr=1e-2)]


@dataclass(frozen=True)
class Recipe:
    """Call it with what attaches a witness: it trains for four steps."""

    optimizers: Optimizers = adamw
    model: Callable[[], nn.Module] = Decoder
    dtype: torch.dtype = torch.float32
    autocast: torch.dtype | None = None
    scale: float | None = None
    """That a GradScaler begins with."""
    overflow_at: tuple[int, ...] = ()
    """Steps in which the last norm's gradient is not finite."""
    accumulate: int = 1
    ragged: bool = False
    reduction: str = "mean"
    clip: str = ""
    closure: bool = False

    def __call__(self, attach: Attach) -> None:
        model = self.model().to(self.dtype).train()
        optimizers = self.optimizers(model)
        witness = attach(model, optimizers)
        scaler = torch.amp.GradScaler("cpu", init_scale=self.scale or 1.0, enabled=self.scale is not None)
        data = list(batches(STEPS * self.accumulate, self.ragged))
        for step in range(STEPS):
            part = data[step * self.accumulate : (step + 1) * self.accumulate]
            if self.closure:
                losses = self._by_closure(model, optimizers, part, witness)
            else:
                losses = [self._backward(model, scaler, *batch, step, witness) for batch in part]
                witness.gradients(scaler.get_scale())
                self._update(model, optimizers, scaler)
            witness.step(torch.stack(losses).mean(), part[-1][1])

    def _backward(
        self, model: nn.Module, scaler: Any, inputs: Tensor, targets: Tensor, step: int, witness: Witness
    ) -> Tensor:
        with witness.forward(), self._precision():
            loss = loss_of(model, inputs, targets, self.reduction)
        if step + 1 in self.overflow_at:
            weight = model.get_parameter("norm.weight")
            loss = loss + (weight - weight.detach()).sqrt().sum()  # 0, with a slope of Inf
        scaler.scale(loss / self.accumulate).backward()
        return loss.detach()

    def _update(self, model: nn.Module, optimizers: Sequence[Optimizer], scaler: Any) -> None:
        for optimizer in optimizers:
            if self.clip:
                scaler.unscale_(optimizer)
        if self.clip == "norm":
            nn.utils.clip_grad_norm_(model.parameters(), 1e-2)
        elif self.clip == "value":
            nn.utils.clip_grad_value_(model.parameters(), 1e-4)
        for optimizer in optimizers:
            scaler.step(optimizer)
        scaler.update()
        for optimizer in optimizers:
            optimizer.zero_grad()

    def _by_closure(
        self, model: nn.Module, optimizers: Sequence[Optimizer], part: Sequence[tuple[Tensor, Tensor]], witness: Witness
    ) -> list[Tensor]:
        losses: list[Tensor] = []

        def closure() -> Tensor:
            model.zero_grad()
            losses.clear()
            for inputs, targets in part:
                with witness.forward():
                    loss = loss_of(model, inputs, targets)
                (loss / len(part)).backward()
                losses.append(loss.detach())
            witness.gradients()
            return torch.stack(losses).mean()

        for optimizer in optimizers:
            optimizer.step(closure)
        return losses

    def _precision(self) -> AbstractContextManager[Any]:
        return nullcontext() if self.autocast is None else torch.autocast("cpu", self.autocast)
