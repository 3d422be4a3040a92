"""The ranks' Monitors meet before the first step, over the store that the process group was made with.

Nothing here waits for a rank for ever: a Monitor that others did not make watches alone.
"""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any

from torch import distributed, nn
from torch.distributed import distributed_c10d

from stabmon.settings import Settings

PATIENCE = 120.0
"""Seconds that a rank waits for the others."""
NAME_PATIENCE = 30.0
"""Seconds that a rank waits for the run's name, which rank 0 tells as soon as it knows it."""
_AGREED = ("every", "probe_every", "dense_steps", "level", "include", "exclude", "disabled")
"""Settings that must be the same on all ranks: those of rank 0 are taken."""

_log = logging.getLogger("stabmon")


@dataclass(frozen=True, slots=True)
class Meeting:
    """What the ranks agreed on."""

    settings: Settings
    start_step: int
    rank: int = 0
    together: bool = False
    """Whether all ranks measure; else rank 0 alone does."""
    reacts: bool = False
    """Whether rank 0 tells the others of alerts."""
    alike: bool = True
    """Whether all ranks have the same parameters, by name: they have not in a pipeline."""
    table: _Table | None = None
    """Where the ranks met."""

    def name_run(self, name: str) -> None:
        """Rank 0 tells the others what the run is called."""
        if self.table is not None and self.together:
            self.table.put("run", name)

    def run_name(self) -> str | None:
        """What rank 0 has told; None where it does not within half a minute."""
        return self.table.get("run", NAME_PATIENCE) if self.table is not None else None

    @property
    def watches(self) -> bool:
        """Whether this rank is to measure anything."""
        return not self.settings.disabled and (self.together or self.rank == 0)


def meet(settings: Settings, start_step: int, reacts: bool, model: nn.Module) -> Meeting:
    """Settings of rank 0 for all; alone where there is but one rank.

    Every rank is to call this equally often. Waits for the others, two minutes at most.
    """
    alone = Meeting(settings, start_step, reacts=reacts)
    if not (distributed.is_available() and distributed.is_initialized()) or distributed.get_world_size() == 1:
        return alone
    mine = {name: getattr(settings, name) for name in _AGREED}
    names = hashlib.sha256(" ".join(name for name, _ in model.named_parameters()).encode()).hexdigest()
    told = json.loads(json.dumps({**mine, "start_step": start_step, "reacts": reacts, "names": names}))
    rank = distributed.get_rank()
    table: _Table | None = None
    try:
        table = _Table(rank)
        decided = table.decide(told)
    except Exception as error:
        who = "it" if rank else "rank 0 alone"
        _log.warning("stabmon: the ranks could not meet (%s); %s is watched without the others", error, who)
        decided = {**told, "together": False}
    if rank:
        _tell_differences(rank, told, decided)
    chosen = settings.model_copy(update={name: _like(mine[name], decided[name]) for name in _AGREED})
    told_reacts, alike = bool(decided["reacts"]), bool(decided.get("alike", True))
    return Meeting(chosen, int(decided["start_step"]), rank, bool(decided["together"]), told_reacts, alike, table)


class _Table:
    """Where the ranks leave each other notes: each Monitor's in its own place, counted by rank."""

    def __init__(self, rank: int) -> None:
        self._store: Any = distributed_c10d._get_default_store()
        self._rank = rank
        self._number = self._store.add(f"stabmon/{rank}", 1)

    def decide(self, told: dict[str, Any]) -> dict[str, Any]:
        """What rank 0 has decided, on every rank."""
        if self._rank:
            self._store.set(self._place(self._rank), json.dumps(told))
            self._store.wait([self._place("decided")], timedelta(seconds=PATIENCE + 10))
            decided: dict[str, Any] = json.loads(self._store.get(self._place("decided")))
            return decided
        others = [self._place(rank) for rank in range(1, distributed.get_world_size())]
        together = not told["disabled"] and self._all_here(others)
        alike = all(self._names(place) == told["names"] for place in others) if together else True
        decided = {**told, "together": together, "alike": alike}
        self._store.set(self._place("decided"), json.dumps(decided))
        return decided

    def put(self, what: str, text: str) -> None:
        self._store.set(self._place(what), text)

    def get(self, what: str, patience: float) -> str | None:
        """None where it is not there in time."""
        place = self._place(what)
        if not _wait(partial(self._store.check, [place]), patience):
            return None
        return bytes(self._store.get(place)).decode()

    def _place(self, who: int | str) -> str:
        return f"stabmon/{self._number}/{who}"

    def _names(self, place: str) -> str:
        return str(json.loads(self._store.get(place))["names"])

    def _all_here(self, others: list[str]) -> bool:
        if _wait(partial(self._store.check, others), 5.0):
            return True
        missing = [place.rpartition("/")[2] for place in others if not self._store.check([place])]
        _log.warning(
            "stabmon: waiting for the Monitor of rank %s (make it on every rank, with the same lines)",
            ", ".join(missing[:8]) + (" …" if len(missing) > 8 else ""),
        )
        if _wait(partial(self._store.check, others), PATIENCE - 5.0):
            return True
        _log.warning("stabmon: not every rank has made a Monitor in %.0f s, so rank 0 watches alone", PATIENCE)
        return False


def _wait(until: Callable[[], bool], seconds: float) -> bool:
    """Whether it came true in that time; asked less and less often, up to once a second."""
    end, pause = time.monotonic() + seconds, 0.01
    while not until():
        if time.monotonic() > end:
            return False
        time.sleep(pause)
        pause = min(2 * pause, 1.0)
    return True


def _tell_differences(rank: int, mine: dict[str, Any], decided: dict[str, Any]) -> None:
    for name in (*_AGREED, "start_step", "reacts"):
        if mine[name] != decided[name]:
            setting = "on_alert" if name == "reacts" else name
            _log.warning("stabmon: %s is not the same on rank %d and on rank 0; rank 0's is taken", setting, rank)


def _like(mine: Any, decided: Any) -> Any:
    """JSON has no tuples."""
    return tuple(decided) if isinstance(mine, tuple) else decided
