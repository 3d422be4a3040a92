"""Weights, updates and learning rate around the optimizer's step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from stabmon.records import Site
from stabmon.taps import Due
from stabmon.taps.groups import Groups
from stabmon.taps.hooks import Hook, spent
from stabmon.taps.optimizer.intended import Intended


class Updates:
    """Copies the weights before the optimizer's first step since `arm`, and compares after the last one.

    What is compared is theta_{t+1} - theta_t as it happened: decay, clipping and skipped steps included. float32
    weights round it, and its norm may be off by 6e-8 of theirs: 0.6 % where update_ratio is 1e-5, 10 % at 6e-7. For
    weights of half precision see Intended.
    """

    name = "updates"

    def __init__(self, groups: Groups, optimizers: Sequence[Optimizer]) -> None:
        self._groups = groups
        self._due = Due(layers=True)
        self._copies: list[Tensor] = []
        self._copied = False
        self._stepped = False
        self._overflow: Tensor | None = None
        self._intended = Intended(groups)
        self._rate: float | Tensor | None = None
        self._error: Exception | None = None
        self._handles = [
            handle
            for optimizer in optimizers
            for handle in (
                optimizer.register_step_pre_hook(Hook(self._before, self._fail)),
                optimizer.register_step_post_hook(Hook(self._after, self._fail)),
            )
        ]

    def columns(self) -> Sequence[tuple[str, Site]]:
        whole = Site("")
        per_block = [(statistic, site) for statistic in self._statistics for site in self._groups.sites]
        return [*per_block, ("learning_rate", whole), ("skipped_steps", whole)]

    @property
    def _statistics(self) -> Sequence[str]:
        lost = ("lost_update_sq",) if self._intended.needed else ()
        return "weight_sq", "update_sq", "intended_update_sq", *lost

    def arm(self, due: Due) -> None:
        self._due = due
        self._intended.clear()
        self._copied = self._stepped = False

    def weights_before(self) -> Mapping[str, Tensor] | None:
        """Parameter name -> its value before the step; None if this step took no copy."""
        return dict(zip(self._groups.names, self._copies, strict=True)) if self._copied else None

    @torch.no_grad()
    def read(self) -> Tensor:
        if self._error is not None:
            raise self._error
        device = self._groups.device
        size = len(self._statistics) * len(self._groups.sites)
        layers = torch.full((size,), torch.nan, dtype=torch.float32, device=device)
        if self._due.layers and self._copied:
            moved = torch._foreach_sub([_widened(t) for t in self._groups.tensors], self._copies)
            weight_sq, update_sq = self._groups.sum_of_squares(self._copies), self._groups.sum_of_squares(moved)
            meant = self._intended.read(update_sq) if self._intended.needed else [update_sq]
            layers = torch.cat((weight_sq, update_sq, *meant))
        rate = torch.nan if self._rate is None or not self._stepped else self._rate
        skipped = _on(device, 0.0 if self._stepped else 1.0)
        if self._stepped and self._overflow is not None:
            skipped = (_on(device, self._overflow) > 0).float()
        rest = [torch.where(skipped > 0, torch.nan, _on(device, rate)), skipped]
        return torch.cat((layers, torch.stack(rest)))

    def weights(self) -> float:
        return 1.0

    def detach(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        self._copies = []

    def _fail(self, error: Exception) -> None:
        self._error = error

    @torch.no_grad()
    def _before(self, optimizer: Optimizer, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        if self._stepped:
            return
        rate = optimizer.param_groups[0]["lr"]
        self._rate = rate.detach().clone() if isinstance(rate, Tensor) else rate  # schedulers change it in place
        if not self._copied and self._groups.readable and (self._due.layers or self._due.probe):
            with spent:
                self._copy()

    def _copy(self) -> None:
        held = self._groups.tensors
        if not self._copies:
            self._copies = [torch.empty_like(p, memory_format=torch.preserve_format) for p in held]
        torch._foreach_copy_(self._copies, held)
        self._copied = True

    @torch.no_grad()
    def _after(self, optimizer: Optimizer, *_: Any) -> None:
        # A fused optimizer is called in a step that a GradScaler skips too, and leaves it out by itself.
        overflow = getattr(optimizer, "found_inf", None)
        self._overflow = overflow if not self._stepped or self._overflow is not None else None
        self._stepped = True
        if self._intended.needed and self._due.layers and self._copied:
            with spent:
                before = zip(self._groups.parameters, self._copies, strict=True)
                self._intended.stepped(optimizer, {id(p): copy for p, copy in before})


def _widened(tensor: Tensor) -> Tensor:
    """A difference that is rounded to half precision has a norm that is off by 1e-4."""
    return tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor


def _on(device: torch.device, value: float | Tensor) -> Tensor:
    if isinstance(value, Tensor):
        return value.detach().to(device, torch.float32, non_blocking=True).reshape(())
    return torch.full((), value, dtype=torch.float32, device=device)
