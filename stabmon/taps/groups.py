"""Parameters by block, and the sum of squares of one tensor per parameter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from stabmon.records import Site

LARGE = 1 << 16


class Groups:
    """Parameters by block: sums one number per parameter into one per block, on the device."""

    def __init__(self, parameters: Mapping[str, nn.Parameter], groups: Mapping[Site, Sequence[str]]) -> None:
        self.sites = tuple(groups)
        self.names = [name for names in groups.values() for name in names]
        self.parameters = [parameters[name] for name in self.names]
        self.device = self.parameters[0].device
        self._scattered = any(p.device != self.device for p in self.parameters)
        self._block_of = [i for i, names in enumerate(groups.values()) for _ in names]
        self._index: dict[tuple[int, ...], tuple[Tensor, Tensor]] = {}

    def sum_of_squares(self, tensors: Sequence[Tensor | None]) -> Tensor:
        """float32[block] of one tensor per parameter; Inf where a value is not finite, NaN where a block has none."""
        present = [(i, _dense(t)) for i, t in enumerate(tensors) if t is not None]
        if not present:
            return torch.full((len(self.sites),), torch.nan, device=self.device)
        norms = _norms([t for _, t in present])
        if self._scattered:
            norms = tuple(norm.to(self.device) for norm in norms)
        squares = torch.stack(norms).square()
        squares = torch.where(squares.isfinite(), squares, torch.inf)
        blocks, empty = self._blocks(tuple(i for i, _ in present))
        return empty.index_add(0, blocks, squares)

    def _blocks(self, present: tuple[int, ...]) -> tuple[Tensor, Tensor]:
        """Block of each present parameter, and what to add to: 0 where a block has one, NaN elsewhere."""
        if present not in self._index:
            blocks = [self._block_of[i] for i in present]
            empty = [0.0 if i in set(blocks) else float("nan") for i in range(len(self.sites))]
            self._index[present] = torch.tensor(blocks).to(self.device), torch.tensor(empty).to(self.device)
        return self._index[present]


def _norms(tensors: list[Tensor]) -> list[Tensor] | tuple[Tensor, ...]:
    """float32 scalars. Halves are added up in float32; torch refuses that for what is wider."""
    if any(t.dtype == torch.float64 or t.is_complex() for t in tensors):
        return [torch.linalg.vector_norm(t).float() for t in tensors]
    return torch._foreach_norm([_by_rows(t) for t in tensors], 2, dtype=torch.float32)


def _by_rows(tensor: Tensor) -> Tensor:
    """The norms of a large tensor's rows, which have its norm: a CPU adds up one long float32 sum with an error of
    7e-4 at 16 million values, rows and then their norms with 1e-7."""
    if tensor.device.type != "cpu" or tensor.numel() < LARGE or tensor.ndim < 2:
        return tensor
    rows: Tensor = torch.linalg.vector_norm(tensor, dim=-1, dtype=torch.float32)
    return rows


def _dense(tensor: Tensor) -> Tensor:
    return tensor.coalesce().values() if tensor.is_sparse else tensor
