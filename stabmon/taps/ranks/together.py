"""The ranks of one training: each measures its share, and the shares become one row in one collective."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Sequence
from typing import Protocol

import torch
from torch import Tensor, distributed

from stabmon.records import Site
from stabmon.taps.ranks.packing import Packing, Row
from stabmon.taps.ranks.union import Column, Local, unite
from stabmon.taps.schedule import Schedule

_log = logging.getLogger("stabmon")


class Ranks(Protocol):
    """Those that watch together, seen from one of them."""

    main: bool
    """Whether this one's rows go on to detectors and sinks."""
    size: int
    alike: bool
    """Whether all have the same parameters, by name; they have not in a pipeline."""

    @property
    def sampled(self) -> bool:
        """Whether the rows of the step under way are put together; else the main rank tells its own alone."""
        ...

    def agree(self, local: Local) -> Sequence[tuple[str, Site]]:
        """Once, at the end of the first step: what the rows consist of from then on."""
        ...

    def combine(self, values: Tensor, rest: Callable[[], Row]) -> tuple[Tensor, Tensor | None]:
        """The finished step's row, and of each tap on how many ranks it has failed (None: not asked).

        `rest` gives the whole Row, where it is needed.
        """
        ...

    def after_step(self) -> None:
        """The step is over for this rank, whether or not its part got to `combine`."""
        ...


class Alone:
    """A rank that hears nothing of others: of what it holds a part of, it knows nothing."""

    main, size, alike, sampled = True, 1, True, True

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._packing: Packing | None = None

    def agree(self, local: Local) -> Sequence[tuple[str, Site]]:
        if any(column.how == "part" for column in local.columns):
            self._packing = Packing(unite([local]), 0, 0, 1, self._device)
        return _taken(local.columns)

    def combine(self, values: Tensor, rest: Callable[[], Row]) -> tuple[Tensor, Tensor | None]:
        return values if self._packing is None else self._packing.alone(values), None

    def after_step(self) -> None: ...


class Together:
    """All ranks of the default process group. Each calls `after_step` after every step, also one whose taps are gone:
    it then takes part with nothing, so that none waits for it."""

    def __init__(
        self, schedule: Schedule, step: int, device: torch.device, alike: bool, joining: Callable[[], bool]
    ) -> None:
        """`step`: steps completed so far; `joining`: whether ranks may run out of data (DDP's `join`), in which case
        nothing can be added up."""
        self.size = distributed.get_world_size()
        self.alike = alike
        self._rank = distributed.get_rank()
        self.main = self._rank == 0
        self._schedule = schedule
        self._step = step
        self._device = device
        self._joining = joining
        self._packing: Packing | None = None
        self._joined = self._lost = False

    @property
    def sampled(self) -> bool:
        due = self._schedule.due(self._step + 1)
        return (due.layers or due.probe) and not self._joining()

    def agree(self, local: Local) -> Sequence[tuple[str, Site]]:
        layouts, mine = [local], 0
        if self._joining():
            self._lost = True
            _log.warning("stabmon: under join(), ranks are not put together; rank 0 tells what it sees alone")
        else:
            try:
                layouts, mine = _exchange(local, self._device)
            except Exception:
                self._lose()
        union = unite(layouts)
        self._packing = Packing(union, mine, self._rank, self.size, self._device)
        return [*_taken(union.columns), *self._packing.between.columns]

    def combine(self, values: Tensor, rest: Callable[[], Row]) -> tuple[Tensor, Tensor | None]:
        packing = self._packing
        assert packing is not None
        total = self._sum(packing, rest()) if self.sampled and not self._lost else None
        row, failed = (packing.alone(values), None) if total is None else packing.of_sum(total)
        return torch.cat((row, packing.compared(total))), failed

    def after_step(self) -> None:
        if self._packing is None:
            self.agree(Local())
        if self._packing is not None and self.sampled and not self._joined and not self._lost:
            self._sum(self._packing, self._packing.nothing())
        self._joined = False
        self._step += 1

    def _sum(self, packing: Packing, row: Row) -> Tensor | None:
        self._joined = True
        vector = packing.vector(row)
        try:
            distributed.all_reduce(vector)
        except Exception:
            self._lose()
            return None
        return vector

    def _lose(self) -> None:
        self._lost = True
        _log.exception("stabmon: the ranks cannot be reached; from here on rank 0 tells what it sees alone")


def _taken(columns: Sequence[Column]) -> list[tuple[str, Site]]:
    return [(column.statistic, column.site) for column in columns]


def _exchange(local: Local, device: torch.device) -> tuple[list[Local], int]:
    """The different layouts that there are, by the lowest rank that has each, and which of them is this rank's."""
    digest = int.from_bytes(hashlib.sha256(repr(local).encode()).digest()[:7])
    found = [torch.zeros(1, dtype=torch.long, device=device) for _ in range(distributed.get_world_size())]
    distributed.all_gather(found, torch.full((1,), digest, dtype=torch.long, device=device))
    digests = torch.cat(found).tolist()
    first = {d: digests.index(d) for d in dict.fromkeys(digests)}
    if len(first) == 1:
        return [local], 0
    layouts: list[Local] = []
    for rank in first.values():
        told = [local]
        distributed.broadcast_object_list(told, src=rank, device=device)
        layouts.append(told[0])
    return layouts, list(first).index(digest)
