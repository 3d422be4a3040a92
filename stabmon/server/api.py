"""The JSON API, under /api/v1. `run` is an id of /runs; left out, it is the newest run."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from typing import Annotated

from fastapi import APIRouter, Depends, HTTPException, Query, Request, Response
from starlette.responses import StreamingResponse

from stabmon.server import answers, models
from stabmon.server.history import LAYERS, History
from stabmon.server.reasons import reason
from stabmon.server.shelf import Shelf, catch_up
from stabmon.server.standing import MODEL

_FOREVER = 2**62
_HEARTBEAT_SECONDS = 15
_LIST_SECONDS = 0.7
"""What of a folder is not read by then comes with a later answer."""
_TICKS = 4
"""A second has so many: how quickly a stream notices that the server ends."""

First = Annotated[int, Query(alias="from", ge=0)]
Last = Annotated[int, Query(alias="to", ge=0)]
_Points = Annotated[int, Query(ge=2, le=4000)]
Several = Annotated[list[str], Query(min_length=1, max_length=16)]
_READ = ["GET", "HEAD"]

# All routes are async and read in the server's own thread: no pool of threads outlives a training.
router = APIRouter(prefix="/api/v1")


async def _opened(request: Request, run: str | None = None) -> tuple[str, History]:
    shelf: Shelf = request.app.state.shelf
    try:
        return await shelf.history(run)
    except LookupError as error:
        raise HTTPException(404, error.args[0]) from None
    except (OSError, ValueError) as error:
        raise HTTPException(404 if isinstance(error, OSError) else 422, reason(error)) from None


Opened = Annotated[tuple[str, History], Depends(_opened)]


@router.api_route("/runs", methods=_READ)
async def _runs(request: Request) -> Response:
    shelf: Shelf = request.app.state.shelf
    rows = await request.app.state.listing.rows(time.perf_counter() + _LIST_SECONDS)
    return answered(models.Runs(live=shelf.live, now=time.time(), runs=rows))


@router.api_route("/run", methods=_READ)
async def _run(run: Opened) -> Response:
    return answered(answers.run(*run))


@router.api_route("/series", methods=_READ)
async def _series(
    run: Opened,
    statistic: str,
    site: Annotated[list[str] | None, Query()] = None,
    first: First = 0,
    last: Last = _FOREVER,
    points: _Points = 1000,
) -> Response:
    check(statistic, (*MODEL, *LAYERS))
    return answered(answers.series(run[1], statistic, site or [], first, last, points))


@router.api_route("/curves", methods=_READ)
async def _curves(
    run: Opened, statistic: Several, first: First = 0, last: Last = _FOREVER, points: _Points = 1000
) -> Response:
    for name in statistic:
        check(name, (*MODEL, *LAYERS))
    return answered(answers.curves(run[1], statistic, first, last, points))


@router.api_route("/scores", methods=_READ)
async def _scores(
    run: Opened,
    detector: Annotated[list[str] | None, Query()] = None,
    first: First = 0,
    last: Last = _FOREVER,
    points: _Points = 1000,
) -> Response:
    return answered(answers.scores(run[1], detector or [], first, last, points))


@router.api_route("/detectors", methods=_READ)
async def _detectors(run: Opened) -> Response:
    return answered(answers.detectors(run[1]))


@router.api_route("/profile", methods=_READ)
async def _profile(run: Opened, statistic: str, step: Annotated[int | None, Query(ge=0)] = None) -> Response:
    check(statistic, LAYERS)
    return answered(answers.profile(run[1], statistic, step))


@router.api_route("/layers", methods=_READ)
async def _layers(
    run: Opened,
    statistic: str,
    first: First = 0,
    last: Last = _FOREVER,
    points: Annotated[int, Query(ge=2, le=1000)] = 120,
) -> Response:
    check(statistic, LAYERS)
    return answered(answers.layers(run[1], statistic, first, last, points))


@router.api_route("/alerts", methods=_READ)
async def _alerts(run: Opened) -> Response:
    return answered(answers.alerts(run[1]))


@router.api_route("/events", methods=_READ)
async def _events(run: Opened) -> Response:
    return answered(answers.events(run[1]))


@router.get("/stream")
async def _stream(request: Request, run: Opened) -> Response:
    headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
    news = _news(run[1], request.app.state.closing)
    return StreamingResponse(news, media_type="text/event-stream", headers=headers)


async def _news(history: History, closing: Callable[[], bool]) -> AsyncIterator[str]:
    """Server-sent events: `rows` at once and then at most once a second, whenever there is something new; `gone` while
    the run log cannot be read. A trainer that starts again is followed on."""
    told: str | int = -1
    quiet = 0.0
    while not closing():
        found: str | int
        try:
            await catch_up(history)
            found, event = history.version, _rows(history)
        except (OSError, ValueError) as error:
            found = reason(error)
            event = f"event: gone\ndata: {found}\n\n"
        quiet += 1
        if found != told:
            told, quiet = found, 0
            yield event
        elif quiet >= _HEARTBEAT_SECONDS:
            quiet = 0
            yield ": nothing new\n\n"
        for _ in range(_TICKS):
            if not closing():
                await asyncio.sleep(1 / _TICKS)


def _rows(history: History) -> str:
    news = models.News(
        version=history.version,
        step=history.step,
        state=history.state,
        alerts=len(history.alerts),
        marks_version=len(history.marks),
        age=history.age(time.time()),
    )
    return f"event: rows\ndata: {news.model_dump_json()}\n\n"


def check(statistic: str, allowed: tuple[str, ...]) -> None:
    if statistic not in allowed:
        raise HTTPException(404, f"there is no statistic {statistic!r} here; there are: {', '.join(allowed)}")


def answered(answer: models.Answer) -> Response:
    return Response(answer.model_dump_json(), media_type="application/json", headers={"cache-control": "no-store"})
