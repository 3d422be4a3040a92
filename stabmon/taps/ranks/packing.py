"""How the values of all ranks travel in one vector that is added up over the ranks. Nothing here talks to a rank."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from stabmon.taps.ranks.between import Between
from stabmon.taps.ranks.union import Column, How, Union

_ABSENT = torch.finfo(torch.float32).min
_TOTAL, _OF = "total_grad_sq", "grad_sq"
"""A sum over the blocks, which may lie on different ranks."""


@dataclass(frozen=True, slots=True)
class Row:
    """One step's values of one rank."""

    values: Tensor
    """float32[column]; NaN = not read."""
    weights: Tensor
    """float32[column]: what each counts in a mean."""
    failed: Tensor
    """float32[tap]: 1 for a tap that was dropped."""
    unsummed: Tensor
    """float32[element]: x|x| of what the ranks have yet to add up before it is squared."""


class Packing:
    """Lanes of the vector: [value x weight | weight | for each rank its own values | failed taps | ranks of which none
    has failed | unsummed elements].

    A value of weight 0 is not there, and Inf stays Inf. A rank's own values are its maxima and what it is compared in
    with the others (Between): each is alone in its lane, the others hold 0 there.
    """

    def __init__(self, union: Union, layout: int | None, rank: int, world: int, device: torch.device) -> None:
        """`layout`: which of the union's this rank has; None: it reads nothing."""
        columns = union.columns
        self._rank, self._world = rank, world
        slots = () if layout is None else union.slots[layout]
        speaks = layout is not None and union.speaks[layout]
        self._several = len(union.slots) > 1

        def whole_numbers(values: list[int]) -> Tensor:
            return torch.tensor(values, dtype=torch.long, device=device)

        def mask(values: list[bool]) -> Tensor:
            return torch.tensor(values, dtype=torch.bool, device=device)

        self._slots = whole_numbers(list(slots))
        self._counts = mask([speaks or columns[k].site.name != "" or columns[k].statistic == _TOTAL for k in slots])
        self._sums, self._parts = mask(_are(columns, "sum")), mask(_are(columns, "part"))
        self._maxima = whole_numbers([k for k, c in enumerate(columns) if c.how == "max"])
        self.between = Between(columns, union.twins, device)
        self._own = torch.cat((self._maxima, whole_numbers(self.between.slots)))
        self._taps = whole_numbers([c.tap for c in columns])
        self._squared = whole_numbers([k for k, n in union.unsummed for _ in range(n)])
        self._unreadable = mask([k in union.unreadable for k in range(len(columns))])
        self._total = whole_numbers([k for k, c in enumerate(columns) if c.statistic == _TOTAL])
        self._of = whole_numbers([k for k, c in enumerate(columns) if c.statistic == _OF])
        self._split = any(_are(columns, "part")) or self._several
        self._failed = torch.ones(union.taps, dtype=torch.float32, device=device)
        self._nothing = torch.full((len(columns),), torch.nan, dtype=torch.float32, device=device)

    def alone(self, values: Tensor) -> Tensor:
        """float32[union]: what this rank's values, float32[column], tell without the others'."""
        known = torch.where(self._counts, values, torch.nan)
        found = self._nothing.index_copy(0, self._slots, known)
        found = torch.where(self._parts, torch.nan, found)
        return found.index_fill(0, self._total, torch.nan) if self._split else found

    def vector(self, row: Row) -> Tensor:
        """What this rank adds to the sum."""
        there = ~row.values.isnan() & (row.weights > 0) & self._counts
        weights = torch.where(there, row.weights, 0.0)
        zero = torch.zeros_like(self._nothing)
        weight = zero.index_copy(0, self._slots, weights)
        value = zero.index_copy(0, self._slots, torch.where(there, row.values, 0.0))
        weighted = value * torch.where(self._sums, 1.0, weight)
        weighted = torch.where(weight > 0, weighted, 0.0)
        held = self._nothing.index_copy(0, self._slots, torch.where(there, row.values, torch.nan))
        mine = held.index_select(0, self._own)
        own = zero.new_zeros(self._world, len(self._own))
        own[self._rank] = torch.where(mine.isnan(), _ABSENT, mine)
        complete = (row.failed.sum() == 0).float().reshape(1)
        return torch.cat((weighted, weight, own.reshape(-1), row.failed, complete, _roots(row.unsummed)))

    def nothing(self) -> Row:
        """The row of a rank that reads nothing any more: all its taps have failed."""
        values = self._nothing[: len(self._slots)]
        return Row(values, torch.zeros_like(values), self._failed, self._nothing.new_zeros(len(self._squared)))

    def of_sum(self, total: Tensor) -> tuple[Tensor, Tensor]:
        """(float32[union], failed float32[tap]) of the vectors' sum; `failed` counts ranks."""
        weighted, weight, own, failed, _, elements = self._lanes(total)
        found = torch.where(self._sums, weighted, weighted / weight)
        found = torch.where(found.isnan(), torch.inf, found)  # Inf - Inf: read, and not finite
        found = torch.where(weight > 0, found, torch.nan)
        most = own[:, : len(self._maxima)].amax(0)
        found = found.index_copy(0, self._maxima, torch.where(most == _ABSENT, torch.nan, most))
        squares = (elements / self._world).square()
        found = found.index_add(0, self._squared, torch.where(squares.isfinite(), squares, torch.inf))
        lost = failed.index_select(0, self._taps) > 0
        found = torch.where(self._parts & lost | self._unreadable, torch.nan, found)
        return self._with_total(found, lost), failed

    def compared(self, total: Tensor | None) -> Tensor:
        """float32[between.columns] of the vectors' sum; NaN where the ranks were not put together."""
        if total is None:
            return self._nothing.new_full((len(self.between.columns),), torch.nan)
        _, _, own, _, complete, _ = self._lanes(total)
        lanes = own[:, len(self._maxima) :]
        return self.between.read(torch.where(lanes == _ABSENT, torch.nan, lanes), complete)

    def _lanes(self, total: Tensor) -> tuple[Tensor, ...]:
        columns, own = len(self._nothing), len(self._own)
        sizes = [columns, columns, self._world * own, len(self._failed), 1, len(self._squared)]
        weighted, weight, values, *rest = torch.split(total, sizes)
        return weighted, weight, values.reshape(self._world, own), *rest

    def _with_total(self, found: Tensor, lost: Tensor) -> Tensor:
        if not self._split or not len(self._total):
            return found
        blocks = found.index_select(0, self._of)
        read = ~blocks.isnan()
        unknown = lost.index_select(0, self._of).any() | self._unreadable.any()
        total = torch.where(read, blocks, 0.0).sum()
        total = torch.where(read.any() & ~unknown, total, torch.nan)
        return found.index_copy(0, self._total, total.expand(len(self._total)))


def _are(columns: tuple[Column, ...], how: How) -> list[bool]:
    return [column.how == how for column in columns]


def _roots(signed: Tensor) -> Tensor:
    """x of x|x|."""
    return signed.sign() * signed.abs().sqrt()
