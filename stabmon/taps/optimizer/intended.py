"""What Adam-like optimizers meant to do to weights of half precision, and how much of it rounding ate."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.optim import Optimizer

from stabmon.taps.groups import Groups
from stabmon.taps.optimizer.adam import Moment, moments, unless_skipped

_HALVES = (torch.bfloat16, torch.float16)


class Intended:
    """The update as the optimizer computed it from its moments, for parameters kept in bfloat16 or float16.

    Such weights move in steps of 2^-8 (2^-11) of themselves or not at all, so their difference is mostly rounding: far
    too large where a step is taken, 0 where none is.
    """

    def __init__(self, groups: Groups) -> None:
        self._halves = {id(p) for p in groups.parameters if p.dtype in _HALVES}
        self._block_of = groups.block_of
        self._blocks, self._device = len(groups.sites), groups.device
        self._sums: dict[int, Tensor] = {}
        """float32[block, 3] by optimizer, so that one whose step calls itself counts once."""

    @property
    def needed(self) -> bool:
        """Whether any parameter is kept in half precision."""
        return bool(self._halves)

    def clear(self) -> None:
        """Forget the finished step."""
        self._sums.clear()

    def stepped(self, optimizer: Optimizer, before: Mapping[int, Tensor]) -> None:
        """The optimizer's step has ended; `before`: id of a parameter -> what it was."""
        sums = self._nothing()
        for found in moments(optimizer, self._halves):
            if found.plain:
                row = unless_skipped(optimizer, measure(found, before[id(found.whole)]), instead=torch.nan)
                sums[self._block_of[id(found.whole)]] += row.to(self._device, non_blocking=True)
        self._sums[id(optimizer)] = sums

    def _nothing(self) -> Tensor:
        return torch.zeros(self._blocks, 3, dtype=torch.float32, device=self._device)

    def read(self, update_sq: Tensor) -> Tensor:
        """float32[2, block]: intended_update_sq, in which parameters that nothing is known of count as they moved, and
        lost_update_sq, NaN where nothing is known of any."""
        sums = sum(self._sums.values(), self._nothing())
        intended, lost, moved = sums.unbind(1)
        known = intended != 0
        rest = (update_sq - moved).clamp_min(0)
        return torch.stack((torch.where(known, intended + rest, update_sq), torch.where(known, lost, torch.nan)))


def measure(found: Moment, before: Tensor) -> Tensor:
    """float32[3], sums of squares: the update that was meant, what of it the weights did not do, what they did."""
    meant, moved = found.update(before), found.parameter.float() - before.float()
    return torch.stack([x.square().sum() for x in (meant, moved - meant, moved)]) * found.count
