"""What this rank reads, told so that it can be put together with what the others read."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from torch import Tensor

from stabmon.catalog import STATISTICS
from stabmon.records import Site
from stabmon.taps import Tap
from stabmon.taps.groups import Groups
from stabmon.taps.parts import Parts
from stabmon.taps.ranks.sharding import hides_parameters, is_shared, twins
from stabmon.taps.ranks.union import Column, How, Local


def local_layout(
    taps: Sequence[Tap],
    columns: Mapping[str, Sequence[tuple[str, Site]]],
    parts: Parts,
    sites: Sequence[Site],
    failed: Collection[str],
) -> Local:
    """`columns`: of each tap, by name; `sites`: all with a layer number; `failed`: taps that have nothing to tell."""
    found = []
    for number, tap in enumerate(taps):
        of_data = tap.name not in failed and isinstance(tap.weights(), Tensor)
        found += [Column(*column, _how(*column, of_data, parts.groups), number) for column in columns[tap.name]]
    unsummed = _unsummed(found, parts.groups)
    same = () if unsummed else twins(parts.groups.parameters)
    return Local(tuple(found), _by_layer(sites, parts.blocks), unsummed, len(taps), same)


def unreadable(parts: Parts, alike: bool) -> str | None:
    """What this model's parameters, or others' (`alike` is False in a pipeline), keep from being read; None: nothing.

    The probe is called outside the training, which none of these can do.
    """
    if why := hides_parameters(parts.model):
        return f"{why}, so gradients, updates and the output change are not read; norms, loss and context share are"
    if any(is_shared(p) for p in parts.model.parameters()):
        return "the parameters are spread over ranks, so the output change of an update is not read; all else is"
    return None if alike else "each rank has a part of the model, so the output change of an update is not read"


def _how(statistic: str, site: Site, of_data: bool, groups: Groups) -> How:
    """Sums over parameters are the same on every rank, or of parts of the same; sums over data add up."""
    how = STATISTICS[statistic].combine
    if how != "sum" or of_data:
        return how
    partial = site in groups.partial or (site.name == "" and groups.partial)
    return "part" if partial else "mean"


def _by_layer(sites: Sequence[Site], blocks: Sequence[str]) -> tuple[str, ...]:
    """Name of the block that each layer number stands for."""
    named = {s.layer: block for s in sites for block in blocks if f"{s.name}.".startswith(f"{block}.")}
    last = max((layer for layer in named if layer is not None), default=-1)
    return tuple(named.get(layer, "") for layer in range(last + 1))


def _unsummed(columns: Sequence[Column], groups: Groups) -> tuple[tuple[int, int], ...]:
    slot = {column.site: i for i, column in enumerate(columns) if column.statistic == "grad_sq"}
    return tuple((slot[groups.sites[block]], elements) for block, elements in groups.unsummed)
