"""`stabmon bench identity`: whether a training leaves the same bits behind with stabmon as without it."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from stabmon.bench.clock import one_thread
from stabmon.bench.identity.training import LEVELS, STEPS, Left, train
from stabmon.bench.identity.ways import WAYS, Way
from stabmon.bench.isolation import failures_raised, own_settings
from stabmon.bench.ranks.processes import on_ranks


@dataclass(frozen=True, slots=True)
class Row:
    """One way to train at one level."""

    mode: str
    level: str
    identical: bool
    note: str


def identity(only: str, as_json: bool) -> bool:
    """Measure and show; returns whether everything is identical. `only`: part of the modes' names.

    ValueError: no mode has that in its name.
    """
    ways = [way for way in WAYS if only in way.name]
    if not ways:
        raise ValueError(f"only is {only!r}; give part of one of: {', '.join(way.name for way in WAYS)}")
    console = Console(stderr=as_json)
    with own_settings(), one_thread(torch.device("cpu")), console.status(f"{len(ways)} ways to train, four times each"):
        found = [row for way in ways for row in rows(way)]
    _show(console, found)
    if as_json:
        sys.stdout.write(json.dumps({"rows": [asdict(row) for row in found]}) + "\n")
    return all(row.identical for row in found)


def rows(way: Way, levels: Sequence[str] = LEVELS) -> Iterator[Row]:
    """Of one way to train, at each level."""
    without, again = (_outcomes(way, None) for _ in range(2))
    for level in levels:
        if _compare(without, again):
            yield Row(way.name, level, False, "not repeatable even without stabmon")
            continue
        watched = _outcomes(way, level)
        differing = _compare(without, watched)
        steps = without[0].steps
        compared = f"{sum(len(left.digests) for left in without)} tensors and states after {steps} optimizer steps"
        shown = f"differs: {', '.join(differing[:3])}" if differing else compared
        yield Row(way.name, level, not differing, shown)


def _compare(one: Sequence[Left], other: Sequence[Left]) -> list[str]:
    return [name for left, right in zip(one, other, strict=True) for name in left.differences(right)]


def _outcomes(way: Way, level: str | None) -> list[Left]:
    """What each rank is left with."""
    if way.ranks == 1:
        with failures_raised():
            return [train(way, level)]
    with tempfile.TemporaryDirectory() as folder:
        return on_ranks(way.ranks, Path(folder), partial(_on_rank, way.name, level))


def _on_rank(name: str, level: str | None, folder: Path) -> Left:
    with failures_raised():
        return train(next(way for way in WAYS if way.name == name), level)


def _show(console: Console, found: Sequence[Row]) -> None:
    table = Table("mode", "level", "identical", "note", box=None, pad_edge=False)
    for row in found:
        table.add_row(row.mode, row.level, "yes" if row.identical else "NO", row.note)
    console.print(table)
    console.print(
        f"{STEPS} steps each, everything read in every step; weights, buffers, optimizer state and the random states "
        "of torch, numpy and python are compared bit for bit with those of the same training without stabmon.",
        highlight=False,
    )
