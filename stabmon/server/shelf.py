"""The runs that are served, each read when it is first asked for and kept up to date afterwards."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Mapping
from pathlib import Path

from stabmon.server.history import History
from stabmon.server.standing import RECENT, Standing

RunLogs = Callable[[], Mapping[str, Path]]
"""The run logs that there are: id -> file, newest first."""
_OPEN = 8
"""Runs of which the history is kept in memory."""


class Shelf:
    """`live`: the one run is watched by this very process."""

    def __init__(self, run_logs: RunLogs, live: bool) -> None:
        self.live = live
        self._run_logs = run_logs
        self._standings: dict[Path, Standing] = {}
        self._histories: OrderedDict[Path, History] = OrderedDict()

    def standings(self) -> dict[str, Standing]:
        """Every run, newest first, not refreshed."""
        found = self._run_logs()
        self._standings = {path: self._standings.get(path) or Standing(path, RECENT) for path in found.values()}
        return {name: self._standings[path] for name, path in found.items()}

    async def history(self, run: str | None) -> tuple[str, History]:
        """That run, or the newest, read to its end. LookupError: there is none; the rest as `stabmon.runlog.read`."""
        found = self._run_logs()
        name = next(iter(found), None) if run is None else run
        if name is None or name not in found:
            raise LookupError("there is no run" if name is None else f"there is no run {name!r}; /api/v1/runs has them")
        path = found[name]
        history = self._histories.setdefault(path, History(path))
        self._histories.move_to_end(path)
        if len(self._histories) > _OPEN:
            self._histories.popitem(last=False)
        await catch_up(history)
        return name, history


async def catch_up(history: Standing) -> None:
    """Read to the end, letting other requests in between."""
    while history.refresh():
        await asyncio.sleep(0)
