"""Hidden units of the feed-forward parts that no token moves, or that every token drives into saturation.

Shapes: N tokens, U hidden units.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from stabmon.catalog import Combine
from stabmon.records import Site
from stabmon.taps import Due
from stabmon.taps.attention.tap import is_attention
from stabmon.taps.experts import is_experts
from stabmon.taps.hooks import Hook
from stabmon.taps.inputs import on_input
from stabmon.taps.model.places import sublayer_sites
from stabmon.taps.parts import Parts
from stabmon.taps.readings import Place, Readings

STATISTICS = ("dead_unit_share", "saturated_unit_share")
DEAD = 1e-2
"""A unit is dead whose largest |value| is at or under this share of the mean |value| of all units: a ReLU's 0, a
GELU that only sees numbers under about -3.5, a SiLU under -8."""
SATURATED = 0.999
"""A unit is saturated whose |value| is over this, and at most 1, for every token: tanh, sigmoid."""


@dataclass(frozen=True)
class Projection:
    """The layer that leads out of a block's feed-forward part: what goes in are the hidden units."""

    name: str
    module: nn.Module
    width: int
    """Hidden units."""


class Units:
    """Looks at what goes into the last projection of each block's feed-forward part, after activation and gate.

    Over the tokens of all of a step's micro-batches, padding left out, that one process has seen. Not read:
    convolutions, experts, and projections that are no module of their own. Dropout between activation and projection
    hides saturation, and nothing else. For a moment it takes the memory of one layer's hidden values.
    """

    name = "units"

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._due = Due(layers=True)
        self._error: Exception | None = None
        self._projections = find_projections(parts.model, parts.blocks)
        self._width = max((p.width for p in self._projections), default=1)
        columns: list[Combine] = ["max"] * (2 * self._width)
        self._readings = Readings(len(self._projections), [*columns, "mean"], parts.device)
        self._handles = [
            p.module.register_forward_pre_hook(Hook(self._hook(place), self._fail), with_kwargs=True)
            for place, p in zip(self._readings.places, self._projections, strict=False)
        ]

    def columns(self) -> Sequence[tuple[str, Site]]:
        names = [p.name for p in self._projections]
        sites = sublayer_sites(names, self._parts.blocks, self._parts.norm_tap.sites).values()
        return [(statistic, site) for statistic in STATISTICS for site in sites]

    def arm(self, due: Due) -> None:
        self._due = due
        self._readings.clear()

    def read(self) -> Tensor:
        if self._error is not None:
            raise self._error
        return shares(self._readings.values()).reshape(-1)

    def weights(self) -> Tensor:
        return self._readings.weights()[:, -1].repeat(len(STATISTICS))

    def detach(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def _fail(self, error: Exception) -> None:
        self._error = error

    def _hook(self, place: Place) -> Callable[..., None]:
        def read(x: Tensor, kept: Tensor | None) -> None:
            self._readings.add(place, *measure(x.reshape(-1, x.shape[-1]), kept, self._width))

        return on_input(self._parts.forward, lambda: self._due.layers, read)


def find_projections(model: nn.Module, blocks: Sequence[str]) -> list[Projection]:
    """Of each block that has one: the last of its linear layers outside attention and experts that makes vectors
    shorter, or else the last one. A part of one layer has no hidden units."""
    modules = dict(model.named_modules())
    found = (_last(block, modules[block]) for block in blocks)
    return [projection for projection in found if projection is not None]


def _last(block: str, module: nn.Module) -> Projection | None:
    sizes = [(name, layer, size) for name, layer in _outside(module, block) if (size := _size(layer))]
    if len(sizes) < 2:
        return None
    name, layer, (width, _) = next((s for s in reversed(sizes) if s[2][0] > s[2][1]), sizes[-1])
    return Projection(name, layer, width)


def _outside(module: nn.Module, name: str) -> list[tuple[str, nn.Module]]:
    """All that it holds, outside of its attention layers and experts."""
    found = [(name, module)]
    for child, part in module.named_children():
        if not (is_attention(part) or is_experts(child)):
            found += _outside(part, f"{name}.{child}")
    return found


def _size(layer: nn.Module) -> tuple[int, int] | None:
    """(features in, features out) of a linear layer; None: it is none."""
    sizes = getattr(layer, "in_features", None), getattr(layer, "out_features", None)
    if type(layer).__name__ == "Conv1D" and isinstance(weight := getattr(layer, "weight", None), Tensor):
        return weight.shape[0], weight.shape[1]  # transformers' linear layer with its weight transposed
    return sizes if all(isinstance(size, int) for size in sizes) else None  # type: ignore[return-value]


def measure(x_NU: Tensor, kept: Tensor | None, width: int) -> tuple[Tensor, Tensor]:
    """float32 [largest |x| of each unit, minus the smallest |x| of each, mean |x|] over the tokens that count, with
    NaN after the units up to `width`, and the number of tokens. kept: N values, 0 for tokens that do not count."""
    size_NU = low_NU = x_NU.abs()
    count = torch.full((), x_NU.shape[0], dtype=torch.float32, device=x_NU.device)
    if kept is not None and kept.numel() == x_NU.shape[0]:
        kept_N1, count = kept.reshape(-1, 1) > 0, (kept > 0).sum().float()
        size_NU, low_NU = size_NU.where(kept_N1, 0), size_NU.where(kept_N1, torch.inf)
    high_U, low_U = size_NU.amax(0).float(), low_NU.amin(0).float()
    mean = size_NU.sum(dtype=torch.float32) / (count * x_NU.shape[1])
    room = (0, width - x_NU.shape[1])
    units = [F.pad(row_U.nan_to_num(torch.inf, torch.inf), room, value=torch.nan) for row_U in (high_U, -low_U)]
    return torch.cat((*units, mean.reshape(1))).where(count > 0, torch.nan), count


def shares(values: Tensor) -> Tensor:
    """float32[dead_unit_share, saturated_unit_share; place] of what `measure` gave, put together. NaN: nothing read;
    Inf: not finite."""
    values, mean_P1 = values[:, :-1], values[:, -1:]
    high_PU, low_PU = values.chunk(2, dim=1)
    units_P = (~high_PU.isnan()).sum(1).float()
    dead_P = (high_PU <= DEAD * mean_P1).sum(1) / units_P
    bounded_PU = (-low_PU > SATURATED) & (high_PU <= 1)
    found = torch.stack((dead_P, bounded_PU.sum(1) / units_P))
    return found.where(~values.isinf().any(1) & mean_P1[:, 0].isfinite(), torch.inf).where(units_P > 0, torch.nan)
