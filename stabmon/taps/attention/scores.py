"""What goes into the softmax of an attention, for some of its queries, and two numbers about it.

Shapes: N sequences, H heads, T queries, S keys, D features of a head; n and t: those that are looked at.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

MASKED = -1e4
"""A score at or below this is that of a key that the query cannot see. Models mask by -inf, by the lowest number of
their type, or by -1e9."""
MAX_QUERIES = 256
"""Looked at in one call, of two sequences, or of one."""
MAX_SCORES = 2**24
"""Float32 numbers that one call may take."""


class Sample:
    """Which sequences and queries are looked at: the first and a middle sequence, queries at an odd stride."""

    def __init__(self, sequences: int, heads: int, queries: int, keys: int) -> None:
        self._apart = max(1, sequences // 2)
        self._count = min(2, max(1, sequences))  # a batch may be empty
        most = min(MAX_QUERIES // self._count, max(1, MAX_SCORES // max(1, self._count * heads * keys)))
        self._stride = max(1, -(-queries // most))
        self._stride |= int(self._stride > 1)
        self.queries = queries

    def sequences(self, x: Tensor) -> Tensor:
        """[n, …] of [N, …]."""
        return x[:: self._apart][: self._count]

    def of(self, x: Tensor) -> Tensor:
        """[n, …, t, X] of [N, …, T, X], as a view."""
        return self.sequences(x)[..., :: self._stride, :]

    def positions(self, device: torch.device) -> Tensor:
        """int64[t]: positions of the queries in their sequences."""
        return torch.arange(0, self.queries, self._stride, device=device)


def scores_given(scores: Tensor, heads: int | None) -> tuple[Tensor, Sample]:
    """float32[n, H, t, S] of scores [N, H, T, S], [N*H, T, S] or [N, T, S] that the model made itself."""
    if scores.ndim == 3:
        heads = heads if heads and scores.shape[0] % heads == 0 else 1
        scores = scores.unflatten(0, (-1, heads))
    scores = scores.flatten(0, -4)
    sample = Sample(*scores.shape)
    return sample.of(scores).float(), sample


def scores_of(
    q: Tensor, k: Tensor, mask: Tensor | None = None, is_causal: bool = False, scale: float | None = None
) -> tuple[Tensor, Sample]:
    """float32[n, H, t, S]: scale * q·k + mask of queries [N, H, T, D] (or [N, T, D]) and keys [N, H / groups, S, D].

    Arguments as of `scaled_dot_product_attention`: a boolean mask is True where a key is visible.
    """
    if mask is not None and mask.ndim == q.ndim == 3:
        mask = mask.unsqueeze(-3)
    q, k = (x.unsqueeze(-3) if x.ndim == 3 else x for x in (q, k))
    lead = torch.broadcast_shapes(q.shape[:-3], k.shape[:-3])
    whole = (*lead, *q.shape[-3:-1], k.shape[-2])
    q, k = (x.expand(*lead, *x.shape[-3:]).flatten(0, -4) for x in (q, k))
    sample = Sample(q.shape[0], q.shape[1], q.shape[2], k.shape[2])
    q, k = sample.of(q).float(), sample.sequences(k).float()
    k = k.repeat_interleave(q.shape[1] // k.shape[1], dim=1)
    scores = q @ k.transpose(-1, -2) * (1 / math.sqrt(q.shape[-1]) if scale is None else scale)
    if is_causal:
        keys = torch.arange(k.shape[2], device=k.device)
        scores = scores.where(keys <= sample.positions(k.device)[:, None], -torch.inf)
    if mask is None:
        return scores, sample
    mask = sample.of(mask.expand(whole).flatten(0, -4))
    return (scores.where(mask, -torch.inf) if mask.dtype == torch.bool else scores + mask.float()), sample


def summary(scores: Tensor, counted: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """float32 [largest score, entropy / ln(visible keys), the same of the lowest head], and how many queries it is of.

    scores: float32[n, H, t, S]; counted: [n, t], 0 for queries that are left out, such as padding. NaN where there is
    nothing to read, Inf where scores are not finite. Queries that see one key have no entropy. Scores whose largest
    was taken away from them (GPT-OSS) have no largest one.
    """
    visible = ~(scores <= MASKED)  # NaN is a value that was read
    if counted is not None:
        visible = visible & (counted > 0)[:, None, :, None]
    keys = visible.sum(-1)
    shown = scores.where(visible, -torch.inf)
    rows = shown.amax(-1)
    shifted = ((rows == 0) | (keys == 0)).all() & (shown.where(visible, 0) < 0).any()
    log_p = shown - shown.logsumexp(-1, keepdim=True)
    entropy = -(log_p.exp() * log_p).where(visible, 0).sum(-1) / keys.clamp(min=2).float().log()
    several = keys > 1
    heads = entropy.where(several, 0).sum((0, 2)) / several.sum((0, 2))
    found = torch.stack((rows.amax(), entropy.where(several, 0).sum() / several.sum(), _lowest(heads)))
    readable = torch.stack((visible.any() & ~shifted, several.any(), several.any()))
    return found.nan_to_num(torch.inf, torch.inf, torch.inf).where(readable, torch.nan), several.sum()


def _lowest(heads: Tensor) -> Tensor:
    """NaN is not read: of heads that have a mask of their own."""
    return heads.where(~heads.isnan(), torch.inf).amin()
