"""The largest values at every norm layer's input: how large, in which channel, how far from the largest number."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from stabmon.catalog import Combine
from stabmon.records import Site
from stabmon.taps import Due
from stabmon.taps.hooks import Hook
from stabmon.taps.inputs import on_input
from stabmon.taps.model.kinds import Norm
from stabmon.taps.parts import Parts
from stabmon.taps.readings import Place, Readings

STATISTICS = ("activation_max", "activation_max_key", "range_used")
_HOW: Sequence[Combine] = ("max", "max", "max")
_TINY = torch.finfo(torch.float32).tiny
_LARGEST = torch.finfo(torch.bfloat16).max
_CHANNELS = 1 << 16


class Extremes:
    """Maxima over the tokens of all of a step's micro-batches, padding left out, the first position included.

    Normalised tensors are looked at as they come in: under autocast the residual stream is often float32 where the
    layers' products are halves, and its headroom is then float32's.
    """

    name = "extremes"

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._due = Due(layers=True)
        self._readings = Readings(len(parts.norms), _HOW, parts.device)
        self._order: Tensor | None = None
        self._error: Exception | None = None
        self._handles = [
            norm.module.register_forward_pre_hook(Hook(self._hook(place, norm), self._fail), with_kwargs=True)
            for place, norm in zip(self._readings.places, parts.norms, strict=False)
        ]

    def columns(self) -> Sequence[tuple[str, Site]]:
        self._order = self._forward_order()
        return [(statistic, site) for statistic in STATISTICS for site in self._parts.norm_tap.sites.values()]

    def arm(self, due: Due) -> None:
        self._due = due
        self._readings.clear()

    def read(self) -> Tensor:
        if self._error is not None:
            raise self._error
        order = self._forward_order() if self._order is None else self._order
        return self._readings.values().index_select(0, order).T.reshape(-1)

    def weights(self) -> float:
        return 1.0

    def detach(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def _forward_order(self) -> Tensor:
        place = {norm.name: i for i, norm in enumerate(self._parts.norms)}
        rows = [place[name] for name in self._parts.norm_tap.sites]
        return torch.tensor(rows, dtype=torch.long, device=self._parts.device)

    def _fail(self, error: Exception) -> None:
        self._error = error

    def _hook(self, place: Place, norm: Norm) -> Callable[..., None]:
        def read(x: Tensor, kept: Tensor | None) -> None:
            self._readings.add(place, measure(norm.over.tokens(x), kept))

        return on_input(self._parts.forward, lambda: self._due.layers, read)


def measure(x_ND: Tensor, kept: Tensor | None = None) -> Tensor:
    """float32 [activation_max, activation_max_key, range_used] over N tokens of D channels.

    kept: N values, 0 for tokens that do not count; None: all count. Every one combines by its maximum. The key's upper
    half is the maximum itself, rounded down to 7 bits after the leading one, its lower half the channel: the larger of
    two keys brings its channel along. Of two maxima within 0.8 % the higher channel wins; NaN where there are more than
    65,536 channels. range_used: ln(max / largest finite value of x's dtype), 0 or less.
    """
    if kept is not None and kept.numel() == x_ND.shape[0]:
        x_ND = torch.where(kept.reshape(-1, 1) > 0, x_ND, 0)
    low_D, high_D = x_ND.aminmax(dim=0)
    most_D = torch.maximum(-low_D, high_D).float()
    most = most_D.amax()
    most = torch.where(most.isfinite(), most, torch.inf)
    used = most.clamp(min=_TINY).log() - math.log(torch.finfo(x_ND.dtype).max)
    if most_D.numel() > _CHANNELS:
        return torch.stack((most, torch.full_like(most, torch.nan), used))
    channel_D = torch.arange(most_D.numel(), device=x_ND.device, dtype=torch.int32)
    rounded_D = most_D.nan_to_num(_LARGEST, _LARGEST).clamp(_TINY, _LARGEST).view(torch.int32) & -_CHANNELS
    return torch.stack((most, (rounded_D | channel_D).view(torch.float32).amax(), used))
