"""How far apart two outputs are, over the positions that count.

Shapes: outputs z and their changes are float32[N, V]; `weights` is float32[N], None: all alike.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

_CHUNK = 2**20
"""Values worked on at a time."""


def mean_square(x: Tensor, weights: Tensor | None = None, centre: Tensor | None = None) -> Tensor:
    """Mean square of x, or of x - centre."""
    norms = [torch.linalg.vector_norm(rows if centre is None else rows - centre, dim=-1) for rows in _chunks(x)]
    return mean(torch.cat(norms).square(), weights) / x.shape[-1]


def mean(values: Tensor, weights: Tensor | None) -> Tensor:
    """Mean over the first dimension."""
    if weights is None:
        return values.mean(0)
    total: Tensor = torch.tensordot(weights.to(values.dtype), values, 1)
    return total / weights.sum()


def kl_divergence(z: Tensor, change: Tensor, weights: Tensor | None = None) -> Tensor:
    """KL(p || q) in nats, mean over rows, of p = softmax(z), q = softmax(z + change).

    With d = change minus its mean under p: KL = log E_p[exp d] = log(1 + E_p[exp d - 1 - d]). No term is negative,
    so that float32 keeps KL to 1e-3 of itself down to changes of 1e-6 (KL of 5e-13).
    """
    rows = zip(_chunks(z), _chunks(change), strict=True)
    return mean(torch.cat([_kl_of_rows(*pair) for pair in rows]), weights)


def _kl_of_rows(z: Tensor, change: Tensor) -> Tensor:
    log_p = torch.log_softmax(z, -1)
    p = log_p.exp()
    d = change - (p * change).sum(-1, keepdim=True)
    small = torch.log1p((p * (torch.expm1(d) - d)).sum(-1))
    large = torch.logsumexp(log_p + d, -1)
    return torch.where(d.amax(-1) < 80, small, large)  # exp(89) is more than float32 holds


def _chunks(x: Tensor) -> Sequence[Tensor]:
    """Rows in portions of 4 MiB, so that a vocabulary of 50,000 needs no second copy of 512 positions."""
    return torch.split(x, max(1, _CHUNK // x.shape[-1]))
