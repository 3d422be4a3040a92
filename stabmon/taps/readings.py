"""Values of several places, added up on the device over the calls of one step."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from stabmon.catalog import Combine


class Readings:
    """A small matrix [place, column]: weighted means, sums or maxima over the step's micro-batches.

    Written in place, so that compiled graphs may write to it. NaN given = not readable, and skipped; what is not
    finite shows as Inf.
    """

    def __init__(self, places: int, combine: Sequence[Combine], device: torch.device) -> None:
        self._weights = torch.zeros(places, len(combine), device=device)
        self._values = torch.zeros(places, len(combine), device=device)
        self._largest = torch.tensor([how == "max" for how in combine], device=device)
        self._mean = torch.tensor([how == "mean" for how in combine], device=device)
        self._only_means = set(combine) == {"mean"}

    def add(self, place: int, values: Tensor, weight: Tensor | float = 1.0) -> None:
        """`values`: float32[column] of one call; `weight`: what it counts in a mean, such as its number of tokens."""
        values = values.to(self._values.device, non_blocking=True)
        if self._only_means:  # the same in half as many operations
            self._weights[place] += (values == values) * weight
            self._values[place] += values.nan_to_num(0.0, torch.inf, torch.inf) * weight
            return
        read = ~values.isnan()
        weights = torch.where(self._mean, weight, 1.0) * read
        held, seen = self._values[place], self._weights[place] > 0
        finite = torch.where(values.isfinite(), values, torch.inf)
        added = held + torch.where(self._mean, finite * weights, finite)
        largest = torch.where(seen, torch.maximum(held, finite), finite)
        held.copy_(torch.where(read, torch.where(self._largest, largest, added), held))
        self._weights[place] += weights

    def values(self) -> Tensor:
        """float32[place, column]; NaN where nothing was read."""
        found = torch.where(self._mean, self._values / self._weights, self._values)
        found = torch.where(found.isnan(), torch.inf, found)  # Inf - Inf: read, and not finite
        return torch.where(self._weights > 0, found, torch.nan)

    def weights(self) -> Tensor:
        """float32[place, column]: how much each value counts beside another rank's."""
        return self._weights.clone()

    def clear(self) -> None:
        """Forget the finished step."""
        self._weights.zero_()
        self._values.zero_()
