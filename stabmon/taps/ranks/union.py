"""What ranks read, in one layout: the same columns under data parallelism, those of every stage in a pipeline.

Pure: nothing here talks to another rank.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from stabmon.records import Site

How = Literal["mean", "part", "sum", "max"]
"""How the ranks' values become one. `mean`: weighted; `part`: a mean that needs every rank, since each holds another
part; `sum`, `max`: over the ranks that have one."""


@dataclass(frozen=True, slots=True)
class Column:
    """One value of a tap."""

    statistic: str
    site: Site
    how: How
    tap: int
    """Number of the tap that reads it."""


@dataclass(frozen=True, slots=True)
class Local:
    """What one rank reads."""

    columns: tuple[Column, ...] = ()
    blocks: tuple[str, ...] = ()
    """Names of its blocks, by their layer number there."""
    unsummed: tuple[tuple[int, int], ...] = ()
    """(column, number of elements) of what ranks have yet to add up before it can be squared."""
    taps: int = 0
    twins: tuple[int, ...] = ()
    """Of each rank, which part of the parameters it holds, the same number for the same part; empty: not known."""


@dataclass(frozen=True, slots=True)
class Union:
    """What all ranks together read."""

    columns: tuple[Column, ...]
    slots: tuple[tuple[int, ...], ...]
    """Of each local layout: where its columns are in `columns`."""
    speaks: tuple[bool, ...]
    """Of each local layout: whether it has the last layer, and so the whole model's loss, output and last norm."""
    unsummed: tuple[tuple[int, int], ...]
    """(column, number of elements) of what is added up over ranks before it is squared."""
    unreadable: frozenset[int]
    """Columns that need such sums, where ranks do not have the same ones."""
    taps: int
    twins: tuple[int, ...]
    """As in the local layouts, where they agree."""


def unite(layouts: Sequence[Local]) -> Union:
    """Of the different layouts that there are. Layers are numbered through, in the order of the blocks' names where
    these differ by numbers alone, else in the order given."""
    order = _global_order([layout.blocks for layout in layouts])
    number = {block: i for i, block in enumerate(order)}
    renamed = [[_numbered(c, layout.blocks, number) for c in layout.columns] for layout in layouts]
    places = _places(renamed)
    found: dict[tuple[int, str, str], Column] = {}
    for columns in sorted(renamed, key=lambda columns: _first(columns, places)):
        for column in columns:
            found.setdefault(_key(column), column)
    statistics = {(c.tap, c.statistic): i for i, c in reversed(list(enumerate(found.values())))}
    united = tuple(found.values())
    if len(layouts) > 1:
        united = tuple(
            sorted(united, key=lambda c: (c.tap, statistics[c.tap, c.statistic], places[c.site.name])),
        )
    slot = {_key(column): i for i, column in enumerate(united)}
    slots = tuple(tuple(slot[_key(column)] for column in local) for local in renamed)
    unsummed = [tuple((to[k], n) for k, n in a.unsummed) for a, to in zip(layouts, slots, strict=True)]
    alike = len(layouts) == 1
    return Union(
        united,
        slots,
        tuple(not order or order[-1] in layout.blocks for layout in layouts),
        unsummed[0] if alike else (),
        frozenset() if alike else frozenset(k for pairs in unsummed for k, _ in pairs),
        max(layout.taps for layout in layouts),
        layouts[0].twins if alike else (),
    )


def _key(column: Column) -> tuple[int, str, str]:
    return column.tap, column.statistic, column.site.name


def _global_order(blocks: Sequence[Sequence[str]]) -> list[str]:
    names = list(dict.fromkeys(name for stage in blocks for name in stage))
    alike = len({re.sub(r"\d+", "#", name) for name in names}) == 1
    several = len({tuple(stage) for stage in blocks if stage}) > 1
    return sorted(names, key=_numbers) if alike and several else names


def _numbers(name: str) -> list[int]:
    return [int(digits) for digits in re.findall(r"\d+", name)]


def _numbered(column: Column, blocks: Sequence[str], number: dict[str, int]) -> Column:
    layer = column.site.layer
    if layer is None or layer >= len(blocks):
        return column
    return replace(column, site=replace(column.site, layer=number[blocks[layer]]))


def _places(renamed: Iterable[Sequence[Column]]) -> dict[str, tuple[int, int]]:
    """Where each site comes: by its layer; without one after the site that it follows on its rank."""
    places: dict[str, tuple[int, int]] = {}
    for columns in renamed:
        latest = -1
        for column in columns:
            site = column.site
            latest = latest if site.layer is None else site.layer
            places.setdefault(site.name, (latest if site.name else -1, len(places)))
    return places


def _first(columns: Sequence[Column], places: dict[str, tuple[int, int]]) -> int:
    return min((places[c.site.name][0] for c in columns if c.site.layer is not None), default=-1)
