"""All rows of some statistics as CSV, sent while they are read."""

from __future__ import annotations

import asyncio
import csv
import io
from collections.abc import AsyncIterator, Sequence
from typing import Annotated

import numpy as np
from fastapi import APIRouter, HTTPException, Query
from starlette.responses import Response, StreamingResponse

from stabmon.catalog import Array
from stabmon.runlog.tail import Chunk, Which
from stabmon.server.api import First, Last, Opened, Several, check
from stabmon.server.history import LAYERS, History
from stabmon.server.standing import MODEL

_NUMBERS = 20_000
"""Written at once: some milliseconds, after which training and others get their turn."""
_FOREVER = 2**62
_DIGITS = 9
"""With so many a float32 comes back bit for bit."""

Column = tuple[str, str]
"""Statistic and site."""

router = APIRouter(prefix="/api/v1")


@router.get("/export.csv")
async def _export(
    run: Opened,
    statistic: Several,
    site: Annotated[list[str] | None, Query()] = None,
    first: First = 0,
    last: Last = _FOREVER,
) -> Response:
    for name in statistic:
        check(name, (*MODEL, *LAYERS))
    history = run[1]
    columns = [(name, at.name) for name in statistic for at in history.sites(name) if not site or at.name in site]
    if not columns:
        raise HTTPException(404, f"this run does not read {', '.join(statistic)} there")
    headers = {"content-disposition": "attachment", "cache-control": "no-store"}  # the page names the file
    return StreamingResponse(_lines(history, columns, first, last), media_type="text/csv", headers=headers)


async def _lines(history: History, columns: Sequence[Column], first: int, last: int) -> AsyncIterator[str]:
    yield written([["step", "time", *(f"{statistic}:{site}" if site else statistic for statistic, site in columns)]])
    which: Which = "all" if any(site for _, site in columns) else "model"
    for chunks in history.tail.chunks(max(20, _NUMBERS // len(columns)), which):
        for chunk in chunks:
            yield written(_rows(chunk.only((chunk.steps >= first) & (chunk.steps <= last)), columns))
        await asyncio.sleep(0)


def _rows(chunk: Chunk, columns: Sequence[Column]) -> list[list[str]]:
    """Those in which any was read; what was not is empty."""
    known = {statistic: _by_site(chunk, statistic) for statistic, _ in columns}
    nothing = np.full(len(chunk.rows), np.nan, dtype=np.float32)
    values = np.array([known[statistic].get(site, nothing) for statistic, site in columns])
    read = np.flatnonzero(~np.isnan(values).all(axis=0))
    told = [["" if value != value else f"{value:.{_DIGITS}g}" for value in row] for row in values[:, read].T.tolist()]
    marks = zip(chunk.steps[read].tolist(), chunk.times[read].tolist(), told, strict=True)
    return [[str(step), f"{unix:.3f}", *row] for step, unix, row in marks]


def _by_site(chunk: Chunk, statistic: str) -> dict[str, Array]:
    """float32[row] of each site that this layout has."""
    return {site.name: row for site, row in zip(chunk.layout.sites_of(statistic), chunk[statistic], strict=True)}


def written(rows: Sequence[Sequence[str]]) -> str:
    """As CSV: names may hold anything."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()
