"""Sees what a forward's attention multiplies: the logits that go into a softmax, or the queries and keys of torch's own
kernel, of which the logits are worked out here in float64."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

_SOFTMAX = (F.softmax, torch.softmax, Tensor.softmax)


@dataclass
class AttentionCall:
    """Logits after scale and mask, float64[B, H, T, keys]; what is masked is far below all else."""

    logits: Tensor
    module: str = ""


class AttentionSpy(TorchFunctionMode):
    """Tells of every attention while it is open."""

    def __init__(self, tell: Callable[[AttentionCall], None]) -> None:
        super().__init__()
        self._tell = tell

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = kwargs or {}
        if func in _SOFTMAX and args[0].ndim == 4:
            self._tell(AttentionCall(args[0].detach().double()))
        elif func is F.scaled_dot_product_attention:
            self._tell(AttentionCall(_logits(*args, **given)))
        elif func is F.multi_head_attention_forward:
            self._tell(AttentionCall(_of_module(*args, **given)))
        return func(*args, **given)


@torch.no_grad()
def _logits(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    q, k = query.detach().double(), key.detach().double()
    if enable_gqa:
        k = k.repeat_interleave(q.shape[-3] // k.shape[-3], -3)
    logits = q @ k.transpose(-2, -1) * (1 / math.sqrt(q.shape[-1]) if scale is None else scale)
    if is_causal:
        attn_mask = torch.ones(logits.shape[-2:], dtype=torch.bool).tril()
    if attn_mask is None:
        return logits
    if attn_mask.dtype == torch.bool:
        return logits.masked_fill(~attn_mask, -math.inf)
    return logits + attn_mask.double()


@torch.no_grad()
def _of_module(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    width: int,
    heads: int,
    weight: Tensor,
    bias: Tensor,
    *_: Any,
    **rest: Any,
) -> Tensor:
    """What nn.MultiheadAttention does inside: time comes first, one matrix projects to queries, keys and values."""
    projected = [
        F.linear(x.detach().double(), w.detach().double(), b.detach().double()).transpose(0, 1)
        for x, w, b in zip((query, key), weight.chunk(3)[:2], bias.chunk(3)[:2], strict=True)
    ]
    q, k = (x.unflatten(-1, (heads, -1)).transpose(1, 2) for x in projected)
    logits = _logits(q, k, k)
    hidden = rest.get("key_padding_mask")
    if hidden is None:
        return logits
    hidden = hidden if hidden.dtype == torch.bool else hidden < 0
    return logits.masked_fill(hidden[:, None, None, :], -math.inf)
