"""Which functions have attention scores in them, and how the scores follow from their arguments.

Shapes: N sequences, H heads, T queries, S keys, E features, D of a head; n and t: those that are looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from stabmon.taps.attention.scores import Sample, scores_given, scores_of

Found = tuple[Tensor, Sample, Tensor]
"""Scores float32[n, H, t, S], which queries they are of, and a tensor [N, T, X] of the same tokens."""
Reader = Callable[..., Found | None]
"""Takes the number of heads that the module tells, and the function's own arguments. None: no scores in it."""


def _of_product(
    heads: int | None,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Found | None:
    if query.ndim < 3 or query.is_nested:
        return None
    scores, sample = scores_of(query.detach(), key.detach(), attn_mask, is_causal, scale)
    return scores, sample, _first_head(query)


def _of_softmax(heads: int | None, input: Tensor, dim: int | None = None, *_: Any, **__: Any) -> Found | None:
    if input.ndim < 3 or dim not in (-1, input.ndim - 1):
        return None
    scores, sample = scores_given(input.detach(), heads)
    return scores, sample, _first_head(input) if input.ndim > 3 else input


def _of_multihead(
    told: int | None,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    width: int,
    heads: int,
    in_weight: Tensor | None,
    in_bias: Tensor | None,
    bias_k: Tensor | None,
    bias_v: Tensor | None,
    add_zero_attn: bool,
    *_: Any,
    **rest: Any,
) -> Found | None:
    """`nn.MultiheadAttention`, whose projections happen inside: its queries and keys are projected again."""
    if bias_k is not None or add_zero_attn:
        return None
    query, key = ((x if x.ndim == 3 else x.unsqueeze(1)).detach().transpose(0, 1) for x in (query, key))
    sample = Sample(len(query), heads, query.shape[1], key.shape[1])
    own = (rest.get("q_proj_weight"), rest.get("k_proj_weight"))
    weights: Iterable[Any] = own if in_weight is None else in_weight.chunk(3)[:2]
    biases = (None, None) if in_bias is None else in_bias.chunk(3)[:2]
    inputs = sample.of(query), sample.sequences(key)
    q, k = (_projected(x, w, b, heads) for x, w, b in zip(inputs, weights, biases, strict=True))
    scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
    whole = (len(query), heads, query.shape[1], key.shape[1])
    for mask in _masks(rest, heads):
        scores = scores + sample.of(mask.expand(whole))
    return scores, sample, query


def _masks(given: Mapping[str, Any], heads: int) -> list[Tensor]:
    """To be added, float32, broadcasting to [N, H, T, S]. True = hidden."""
    padding, mask = given.get("key_padding_mask"), given.get("attn_mask")
    found = [] if padding is None else [padding.reshape(-1, 1, 1, padding.shape[-1])]
    found += [] if mask is None else [mask.unflatten(0, (-1, heads)) if mask.ndim == 3 else mask]
    return [
        m.new_zeros(m.shape, dtype=torch.float32).masked_fill(m, -torch.inf) if m.dtype == torch.bool else m.float()
        for m in found
    ]


def _projected(x: Tensor, weight: Tensor, bias: Tensor | None, heads: int) -> Tensor:
    """float32[n, H, T, D] of inputs [n, T, E] and a projection [H*D, E]."""
    y = F.linear(x.float(), weight.detach().float(), None if bias is None else bias.detach().float())
    return torch.unflatten(y, -1, (heads, -1)).transpose(1, 2)


def _first_head(x: Tensor) -> Tensor:
    """[N, T, X] of [N, H, T, X], [N, T, X] or more dimensions before the heads."""
    return x.flatten(0, -4).select(1, 0) if x.ndim > 3 else x


READERS: Mapping[Any, Reader] = {
    F.scaled_dot_product_attention: _of_product,
    F.multi_head_attention_forward: _of_multihead,
    F.softmax: _of_softmax,
    torch.softmax: _of_softmax,
    torch.special.softmax: _of_softmax,
    Tensor.softmax: _of_softmax,
}
"""By function, as a function mode is given it."""
