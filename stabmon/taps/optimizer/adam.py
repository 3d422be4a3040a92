"""What the state of an Adam-like optimizer says: its moments with the bias corrected, block by block."""

from __future__ import annotations

import sys
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from stabmon.taps.ranks.sharding import local, parts, summands
from stabmon.taps.real import real

_EIGHT_BIT = "bitsandbytes.functional"
_SCALED = 256
"""Values that share one scale in an 8-bit state of bitsandbytes."""


@dataclass(frozen=True, slots=True)
class Moment:
    """Of one parameter that had a gradient in the step that has just ended; what this rank holds of it."""

    parameter: Tensor
    whole: Tensor
    """The parameter as the model has it."""
    gradient: Tensor
    m_hat: Tensor
    """float32, as root_v."""
    root_v: Tensor
    """sqrt(v_hat)."""
    group: Mapping[str, Any]
    plain: bool
    """Whether the optimizer's update is exactly Adam's or AdamW's."""

    @property
    def eps(self) -> float:
        return float(self.group["eps"])

    @property
    def count(self) -> int:
        """How often its coordinates count beside those of parameters that every rank holds."""
        return parts(self.whole)

    def direction(self) -> Tensor:
        """m_hat / (sqrt(v_hat) + eps): what the learning rate multiplies (Kingma & Ba 2015, algorithm 1)."""
        return self.m_hat / (self.root_v + self.eps)

    def made_of(self) -> Tensor:
        """What was added to the moments: the gradient, and with it Adam's weight decay."""
        gradient = -self.gradient.float() if self.group.get("maximize") else self.gradient.float()
        if not self._decay or self._decoupled:
            return gradient
        before = self.parameter.float() + self.group["lr"] * self.direction()
        return torch.add(gradient, before, alpha=self._decay)

    def update(self, before: Tensor) -> Tensor:
        """theta_{t+1} - theta_t as the optimizer computed it, before it was rounded to the weights' own dtype."""
        decay = self._decay if self._decoupled else 0.0
        return -torch.add(self.direction(), before.float(), alpha=decay).mul_(self.group["lr"])

    @property
    def _decay(self) -> float:
        return float(self.group.get("weight_decay", 0))

    @property
    def _decoupled(self) -> bool:
        return bool(self.group.get("decoupled_weight_decay", True))


def moments(optimizer: Optimizer, wanted: Container[int]) -> Iterator[Moment]:
    """Those of all parameters, of those whose id is `wanted`, that the optimizer keeps two moments of."""
    plain = _plain(optimizer)
    for group in optimizer.param_groups:
        if "betas" not in group or not isinstance(group.get("eps"), float):
            continue
        for p in group["params"]:
            # Without a gradient it was not stepped; one that ranks have yet to sum up is not known here.
            if id(p) not in wanted or p.grad is None or p.grad.is_sparse or summands(p.grad) > 1:
                continue
            if local(p.grad).shape != local(p).shape:  # spread otherwise than the parameter and its moments
                continue
            held, gradient = real(local(p.detach())), real(local(p.grad.detach()))
            if (corrected := _corrected(optimizer.state.get(p, {}), group, held)) is not None:
                m_hat, v_hat = corrected
                yield Moment(held, p, gradient, m_hat, v_hat.sqrt(), group, plain)


def _corrected(state: Mapping[str, Any], group: Mapping[str, Any], p: Tensor) -> tuple[Tensor, Tensor] | None:
    """(m_hat, v_hat), float32; None: the state has no two moments of the parameter's shape."""
    m = _held(state, "exp_avg", "1")
    v = _held(state, "max_exp_avg_sq" if group.get("amsgrad") else "exp_avg_sq", "2")
    step = state.get("step", group.get("step"))
    if m is None or v is None or step is None or m.shape != p.shape or v.shape != p.shape:
        return None
    if isinstance(step, Tensor):  # no `float(step)`: it may be on the device
        step = local(step).to(torch.float32 if step.device.type == "mps" else torch.float64)
    return m.float() / (1 - group["betas"][0] ** step), v.float() / (1 - group["betas"][1] ** step)


def _held(state: Mapping[str, Any], name: str, number: str) -> Tensor | None:
    """A moment as torch keeps it, or bitsandbytes: in 32 bits, or in 8 with one scale per 256 values."""
    moment: Tensor | None = state.get(name, state.get(f"state{number}"))
    if moment is None or moment.dtype != torch.uint8:
        return None if moment is None else real(local(moment))
    scales, code = state.get(f"absmax{number}"), state.get(f"qmap{number}")
    if scales is None or code is None or _EIGHT_BIT not in sys.modules:
        return None
    unpack = sys.modules[_EIGHT_BIT].dequantize_blockwise
    unpacked: Tensor = unpack(moment, absmax=scales, code=code, blocksize=_SCALED)
    return unpacked


def _plain(optimizer: Optimizer) -> bool:
    ours = isinstance(optimizer, torch.optim.Adam | torch.optim.AdamW)
    return ours or type(optimizer).__module__.startswith("bitsandbytes.optim.adam")


def unless_skipped(optimizer: Optimizer, value: Tensor, instead: float) -> Tensor:
    """`instead` in a step that a GradScaler skips: a fused optimizer is called in it, and leaves it out by itself."""
    overflow = getattr(optimizer, "found_inf", None)
    return value if overflow is None else torch.where(overflow.to(value.device, non_blocking=True) > 0, instead, value)
