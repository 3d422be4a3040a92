"""Values of several places, added up on the device over the calls of one step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from stabmon.catalog import Combine


@dataclass(frozen=True, slots=True)
class Place:
    """A row, also as int64[1] on the device: layers that have nothing but this tensor apart share a compiled graph."""

    number: int
    index: Tensor


class Readings:
    """A small matrix [place, column]: weighted means, sums or maxima over the step's micro-batches.

    Written in place, so that compiled graphs may write to it. NaN given = not readable, and skipped; what is not
    finite shows as Inf.
    """

    def __init__(self, places: int, combine: Sequence[Combine], device: torch.device) -> None:
        self._weights = torch.zeros(places, len(combine), dtype=torch.float32, device=device)
        self._values = torch.zeros_like(self._weights)
        self._largest = torch.tensor([how == "max" for how in combine], device=device)
        self._mean = torch.tensor([how == "mean" for how in combine], device=device)
        self._one = torch.ones((), dtype=torch.float32, device=device)
        self._only_means = set(combine) == {"mean"}
        self.places = [Place(i, row) for i, row in enumerate(torch.arange(places, device=device).split(1))]
        for buffer in (self._weights, self._values):
            torch._dynamo.mark_static_address(buffer)  # CUDA graphs that write to it need no copy of it

    def add(self, place: int | Place, values: Tensor, weight: Tensor | float = 1.0) -> None:
        """`values`: float32[column] of one call; `weight`: what it counts in a mean, such as its number of tokens."""
        values = values.to(self._values.device, non_blocking=True)
        if isinstance(weight, Tensor):
            weight = weight.to(self._values.device, non_blocking=True)
        if torch.compiler.is_compiling() and isinstance(place, Place):
            held, count = (x.index_select(0, place.index)[0] for x in (self._values, self._weights))
            held, count = self._added(held, count, values, weight)
            self._values.index_copy_(0, place.index, held.unsqueeze(0))
            self._weights.index_copy_(0, place.index, count.unsqueeze(0))
            return
        number = place.number if isinstance(place, Place) else place
        held, count = self._values[number], self._weights[number]
        if self._only_means:  # the same in half as many operations
            count += (values == values) * weight
            held += values.nan_to_num(0.0, torch.inf, torch.inf) * weight
            return
        added = self._added(held, count, values, weight)
        held.copy_(added[0])
        count.copy_(added[1])

    def _added(self, held: Tensor, count: Tensor, values: Tensor, weight: Tensor | float) -> tuple[Tensor, Tensor]:
        """One place's values and weights with one call more."""
        read = ~values.isnan()
        weights = torch.where(self._mean, weight, self._one) * read
        finite = torch.where(values.isfinite(), values, torch.inf)
        added = held + torch.where(self._mean, finite * weights, finite)
        largest = torch.where(count > 0, torch.maximum(held, finite), finite)
        return torch.where(read, torch.where(self._largest, largest, added), held), count + weights

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
