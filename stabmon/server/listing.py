"""The rows of the list: a folder may hold a thousand runs, most of which ended long ago."""

from __future__ import annotations

import asyncio
import time

from stabmon.server import answers, models
from stabmon.server.reasons import reason
from stabmon.server.shelf import Shelf, catch_up
from stabmon.server.standing import Standing

UNREAD = "not read yet; it follows in a moment"
_PIECE_SECONDS = 0.01
"""Then others get their turn."""


class Listing:
    """Keeps the rows of runs that have ended: they stay as they are."""

    def __init__(self, shelf: Shelf) -> None:
        self._shelf = shelf
        self._kept: dict[str, tuple[Standing, int, models.RunRow]] = {}

    async def rows(self, until: float) -> list[models.RunRow]:
        """A row each, newest first. Runs that were never read and have no time left until then (by
        `time.perf_counter`) say so."""
        rows, began = [], time.perf_counter()
        for name, standing in self._shelf.standings().items():
            late = standing.run is None and time.perf_counter() > until
            rows.append(models.RunRow(id=name, name=name, error=UNREAD) if late else await self._row(name, standing))
            if time.perf_counter() - began > _PIECE_SECONDS:
                await asyncio.sleep(0)
                began = time.perf_counter()
        return rows

    async def _row(self, name: str, standing: Standing) -> models.RunRow:
        try:
            await catch_up(standing)
        except (OSError, ValueError) as error:
            return models.RunRow(id=name, name=name, error=reason(error))
        known, version, row = self._kept.get(name, (None, -1, None))
        if row is not None and (known, version) == (standing, standing.version):
            return row.model_copy(update={"age": standing.age(time.time())})
        row = answers.run_row(name, standing)
        if standing.state != "running":
            self._kept[name] = standing, standing.version, row
        return row
