"""What people say of alerts: seen, false, or not to be told of for some steps."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Literal

from fastapi import APIRouter, HTTPException, Request, Response
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from stabmon.records import MarkKind
from stabmon.runlog.marks import Mark, add_mark
from stabmon.server import answers
from stabmon.server.api import Opened, answered
from stabmon.server.reasons import reason
from stabmon.server.shelf import catch_up

_TRIES = 20
_REST_SECONDS = 0.05
_LONGEST_BODY = 8192
_KINDS: dict[str, MarkKind] = {
    "acknowledge": "acknowledged",
    "mute": "muted",
    "false_alarm": "false_alarm",
    "clear": "none",
}
_FORM = (
    'the body is JSON such as {"kind": "mute", "steps": 100}: kind is acknowledge, mute, false_alarm or clear; '
    "steps, of a mute, is 1 to 1,000,000; note and by, your name, have up to 200 characters"
)

router = APIRouter(prefix="/api/v1")


class Said(BaseModel):
    """The body of a request."""

    model_config = ConfigDict(extra="forbid")

    kind: Literal["acknowledge", "mute", "false_alarm", "clear"]
    steps: int = Field(100, ge=1, le=1_000_000)
    note: str = Field("", max_length=200)
    by: str = Field("", max_length=200)


@router.post("/alerts/{alert:path}/mark")
async def _mark(request: Request, run: Opened, alert: str) -> Response:
    """All alerts, with the mark."""
    said, history = await _said(request), run[1]
    if all(known.id != alert for known in history.alerts):
        raise HTTPException(404, f"this run has no alert {alert!r}; /api/v1/alerts has their ids")
    until = history.step + said.steps if said.kind == "mute" else None
    mark = Mark(alert, _KINDS[said.kind], history.step, time.time(), until, said.note, said.by)
    await _keep(history.path, mark)
    history.look_again()
    await catch_up(history)
    return answered(answers.alerts(history))


async def _said(request: Request) -> Said:
    # No other site can send this type without asking first, and nobody here would answer it.
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise HTTPException(415, f"send content-type: application/json; {_FORM}")
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > _LONGEST_BODY:
            raise HTTPException(413, f"the body is too long; {_FORM}")
    try:
        return Said.model_validate_json(body)
    except ValidationError:
        raise HTTPException(422, _FORM) from None


async def _keep(path: Path, mark: Mark) -> None:
    for _ in range(_TRIES):
        try:
            return add_mark(path, mark)
        except TimeoutError:
            await asyncio.sleep(_REST_SECONDS)
        except FileNotFoundError as error:
            raise HTTPException(404, reason(error)) from None
        except (OSError, ValueError) as error:
            raise HTTPException(409, reason(error)) from None
    raise HTTPException(503, f"{path.name} is being written all the time; try again in a moment", {"retry-after": "1"})
