"""What the state of an Adam-like optimizer says: its moments with the bias corrected, block by block."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

_EIGHT_BIT = "bitsandbytes.functional"
_BLOCK = 256
"""Values that share one scale in an 8-bit state of bitsandbytes."""


@dataclass(frozen=True, slots=True)
class Moments:
    """Of the parameters of one block and one parameter group that had a gradient in the step that has just ended.

    Lists have one tensor per parameter, moments are float32.
    """

    parameters: list[Tensor]
    m_hat: list[Tensor]
    root_v: list[Tensor]
    """sqrt(v_hat)."""
    eps: float
    group: Mapping[str, Any]
    plain: bool
    """Whether the optimizer's update is exactly Adam's or AdamW's."""

    def direction(self) -> tuple[Tensor, ...]:
        """m_hat / (sqrt(v_hat) + eps): what the learning rate multiplies (Kingma & Ba 2015, algorithm 1)."""
        found: tuple[Tensor, ...] = torch._foreach_div(self.m_hat, torch._foreach_add(self.root_v, self.eps))
        return found

    def gradients(self) -> list[Tensor]:
        """What the moments are made of: the gradients, and Adam's weight decay, which is added to them."""
        gradients = [p.grad.detach().float() for p in self.parameters if p.grad is not None]
        if self.group.get("maximize"):
            gradients = list(torch._foreach_neg(gradients))
        decay = self.group.get("weight_decay", 0)
        if not decay or self.group.get("decoupled_weight_decay", True):
            return gradients
        # The weights of before the step, which they were added from.
        before = (
            p.detach().float() + self.group["lr"] * u for p, u in zip(self.parameters, self.direction(), strict=True)
        )
        return [g + decay * weight for g, weight in zip(gradients, before, strict=True)]

    def updates(self, before: Sequence[Tensor]) -> list[Tensor]:
        """theta_{t+1} - theta_t as the optimizer computed it, before rounding to the weights' own dtype."""
        decay = self.group.get("weight_decay", 0) if self.group.get("decoupled_weight_decay", True) else 0
        found = zip(self.direction(), before, strict=True)
        return [-self.group["lr"] * (u + decay * weight.float()) for u, weight in found]


def moments(optimizer: Optimizer, block_of: Mapping[int, int]) -> Iterator[tuple[int, Moments]]:
    """(block, moments) for all parameters with two moments; `block_of`: id of a parameter -> number of its block."""
    for group in optimizer.param_groups:
        if "betas" not in group or not isinstance(group.get("eps"), float):
            continue
        found: dict[int, list[tuple[Tensor, Tensor, Tensor]]] = {}
        for p in group["params"]:
            if id(p) not in block_of or p.grad is None:  # without a gradient it was not stepped
                continue
            if (corrected := _corrected(p, optimizer.state.get(p, {}), group)) is not None:
                found.setdefault(block_of[id(p)], []).append((p, *corrected))
        for block, rows in found.items():
            parameters, m_hat, v_hat = (list(column) for column in zip(*rows, strict=True))
            yield (
                block,
                Moments(parameters, m_hat, list(torch._foreach_sqrt(v_hat)), group["eps"], group, _plain(optimizer)),
            )


def _corrected(p: Tensor, state: Mapping[str, Any], group: Mapping[str, Any]) -> tuple[Tensor, Tensor] | None:
    """(m_hat, v_hat), float32; None: the state has no two moments of the parameter's shape."""
    m, v = _first(p, state), _second(p, state, group)
    step = state.get("step", group.get("step"))
    if m is None or v is None or step is None:
        return None
    if isinstance(step, Tensor):  # no `float(step)`: it may be on the device
        step = step.to(torch.float32 if step.device.type == "mps" else torch.float64)
    return m.float() / (1 - group["betas"][0] ** step), v.float() / (1 - group["betas"][1] ** step)


def _first(p: Tensor, state: Mapping[str, Any]) -> Tensor | None:
    return _of_shape(p, state.get("exp_avg", _unpacked(state, "1")))


def _second(p: Tensor, state: Mapping[str, Any], group: Mapping[str, Any]) -> Tensor | None:
    usual = "max_exp_avg_sq" if group.get("amsgrad") else "exp_avg_sq"
    return _of_shape(p, state.get(usual, _unpacked(state, "2")))


def _of_shape(p: Tensor, moment: Tensor | None) -> Tensor | None:
    return moment if moment is not None and moment.shape == p.shape else None


def _unpacked(state: Mapping[str, Any], number: str) -> Tensor | None:
    """A moment as bitsandbytes keeps it, in 32 bits or in 8 with one scale per 256 values."""
    moment = state.get(f"state{number}")
    if moment is None or moment.dtype != torch.uint8:
        return moment
    scales, code = state.get(f"absmax{number}"), state.get(f"qmap{number}")
    if scales is None or code is None or _EIGHT_BIT not in sys.modules:
        return None
    unpacked: Tensor = sys.modules[_EIGHT_BIT].dequantize_blockwise(moment, absmax=scales, code=code, blocksize=_BLOCK)
    return unpacked


def _plain(optimizer: Optimizer) -> bool:
    ours = isinstance(optimizer, torch.optim.Adam | torch.optim.AdamW)
    return ours or type(optimizer).__module__.startswith("bitsandbytes.optim.adam")
