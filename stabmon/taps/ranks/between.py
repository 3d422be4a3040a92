"""What ranks that train copies of one model must have in common, and how far apart they are in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from stabmon.records import Site
from stabmon.taps.ranks.union import Column

COMPARED: Mapping[str, str] = {
    "weight_sq": "rank_weight_spread",
    "grad_sq": "rank_grad_spread",
    "loss": "rank_loss_spread",
}
"""Statistic -> how far apart the ranks are in it."""
_MODEL = ("rank_loss_highest", "ranks_read", "ranks_lost")


class Between:
    """Reads what every rank has put into a lane of its own. What ranks hold parts of is compared between those that
    hold the same part, where there are such (HSDP).
    """

    def __init__(self, columns: Sequence[Column], twins: Sequence[int], device: torch.device) -> None:
        """`twins`: of each rank the number of its part, as many of each; empty: not known."""
        self._sets = len(set(twins))
        shared = self._sets < len(twins)
        hows = ("mean", "part") if shared else ("mean",)
        found = [(k, c) for k, c in enumerate(columns) if c.statistic in COMPARED and c.how in hows]
        self.slots = [k for k, _ in found]
        """Of the columns that are compared."""
        self.columns = [(COMPARED[c.statistic], c.site) for _, c in found] + [(s, Site("")) for s in _MODEL]
        """What `read` returns, in order."""
        self._parts = torch.tensor([c.how == "part" for _, c in found], dtype=torch.bool, device=device)
        order = sorted(range(len(twins)), key=lambda rank: twins[rank])
        self._by_part = torch.tensor(order, device=device) if shared else None
        self._loss = next((i for i, (_, c) in enumerate(found) if c.statistic == "loss"), None)

    def read(self, lanes: Tensor, complete: Tensor) -> Tensor:
        """float32[columns]; `lanes`: float32[rank, slot], NaN where a rank has none; `complete`: float32[1], ranks
        whose taps all read."""
        spread = _spread(lanes)
        if self._by_part is not None:
            within = _spread(lanes.index_select(0, self._by_part).unflatten(0, (self._sets, -1)))
            known = torch.where(within.isnan(), -torch.inf, within).amax(0)
            spread = torch.where(self._parts, torch.where(known.isneginf(), torch.nan, known), spread)
        highest = torch.full_like(complete, torch.nan)
        if self._loss is not None:
            losses = lanes.narrow(1, self._loss, 1)
            highest = losses.nan_to_num(-torch.inf, posinf=torch.inf).argmax(0).float()
            highest = torch.where(_several(losses), highest, torch.nan)
        return torch.cat((spread, highest, complete, len(lanes) - complete))


def _spread(lanes: Tensor) -> Tensor:
    """Over the last dimension but one: (largest - smallest) / the larger size of the two; 0 where all are equal, NaN
    with fewer than two."""
    missing = lanes.isnan()
    high = torch.where(missing, -torch.inf, lanes).amax(-2)
    low = torch.where(missing, torch.inf, lanes).amin(-2)
    size = torch.maximum(high.abs(), low.abs())
    apart = torch.where(size.isinf(), torch.inf, (high - low) / size)
    apart = torch.where(high == low, 0.0, apart)
    return torch.where(_several(lanes), apart, torch.nan)


def _several(lanes: Tensor) -> Tensor:
    return (~lanes.isnan()).sum(-2) > 1
