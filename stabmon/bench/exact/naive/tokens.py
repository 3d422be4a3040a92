"""Which tokens count: no padding, and in means not the first of a sequence."""

from __future__ import annotations

import torch
from torch import Tensor

from stabmon.bench.exact.twin import Call


def counting(call: Call, shape: torch.Size, first: bool = False) -> Tensor:
    """bool[...] of that shape, whose dimensions are [B, T, ...], or [B * T]; all True where it is of no tokens.

    `first`: so does the first token of a sequence.
    """
    for grid in _grids(call.batch, first):
        if shape[:2] == grid.shape:
            return grid.reshape(*grid.shape, *[1] * (len(shape) - 2)).expand(shape)
        if tuple(shape) == (grid.numel(),):
            return grid.flatten()
    return torch.ones(shape, dtype=torch.bool)


def _grids(batch: dict[str, Tensor], first: bool) -> list[Tensor]:
    """bool[B, T] of what goes in, and of labels of another length, which a decoder is given."""
    found = []
    for name in ("input_ids", "labels"):
        ids = batch.get(name)
        if ids is None or ids.ndim != 2 or ids.is_floating_point():
            continue
        mask = batch.get("attention_mask")
        fits = mask is not None and mask.shape == ids.shape
        grid = mask.bool().clone() if fits and mask is not None else torch.ones_like(ids, dtype=torch.bool)
        grid[:, 0] &= first
        found.append(grid)
    return found
