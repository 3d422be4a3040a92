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
    """Reads what every rank has put into a lane of its own. What ranks hold parts of is not compared: only of means
    over the ranks has each one its own."""

    def __init__(self, columns: Sequence[Column]) -> None:
        found = [(k, c) for k, c in enumerate(columns) if c.statistic in COMPARED and c.how == "mean"]
        self.slots = [k for k, _ in found]
        """Of the columns that are compared."""
        self.columns = [(COMPARED[c.statistic], c.site) for _, c in found] + [(s, Site("")) for s in _MODEL]
        """What `read` returns, in order."""
        self._loss = [i for i, (_, c) in enumerate(found) if c.statistic == "loss"][:1]

    def read(self, lanes: Tensor, complete: Tensor) -> Tensor:
        """float32[columns]; `lanes`: float32[rank, slot], NaN where a rank has none; `complete`: float32[1], ranks
        whose taps all read."""
        lost = len(lanes) - complete
        highest = lanes[:, self._loss].nan_to_num(-torch.inf, posinf=torch.inf).argmax(0).float()
        highest = torch.where(self._several(lanes)[self._loss], highest, torch.nan)
        if not self._loss:
            highest = torch.full_like(complete, torch.nan)
        return torch.cat((self._spread(lanes), highest, complete, lost))

    def _spread(self, lanes: Tensor) -> Tensor:
        """(largest - smallest) / the larger size of the two; 0 where all are equal, NaN with fewer than two."""
        missing = lanes.isnan()
        high = torch.where(missing, -torch.inf, lanes).amax(0)
        low = torch.where(missing, torch.inf, lanes).amin(0)
        size = torch.maximum(high.abs(), low.abs())
        apart = torch.where(size.isinf(), torch.inf, (high - low) / size)
        apart = torch.where(high == low, 0.0, apart)
        return torch.where(self._several(lanes), apart, torch.nan)

    def _several(self, lanes: Tensor) -> Tensor:
        return (~lanes.isnan()).sum(0) > 1
