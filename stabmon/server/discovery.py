"""Where Prometheus finds the runs: a small file beside each run log while it is served, and all of a folder at /sd."""

from __future__ import annotations

import glob
import json
import os
import re
import secrets
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

from stabmon.server.shelf import Shelf, catch_up
from stabmon.server.standing import Standing

SUFFIX = ".target.json"
_ABANDONED_SECONDS = 3600.0
"""A run that says it is running, and has not had a step for so long, is not looked for any more. Until then its target
stays: one that vanished with the process would take the alert that it is down with it."""


def write_target(folder: Path, run: str, rank: int, url: str) -> Path:
    """In the form of Prometheus' file_sd, whole at once: the glob `FOLDER/*.target.json` finds it."""
    scheme, _, address = url.partition("://")
    labels = {"__scheme__": scheme, "__meta_stabmon_run": run, "__meta_stabmon_rank": str(rank)}
    path = folder / f"{run}.{rank}{SUFFIX}"
    replace_text(path, json.dumps([{"targets": [address], "labels": labels}]) + "\n")
    return path


def replace_text(path: Path, text: str) -> None:
    """At no moment is there half a file. OSError: it cannot be written."""
    draft = path.with_name(f".{secrets.token_hex(4)}.tmp")
    try:
        draft.write_text(text, encoding="utf-8")
        os.replace(draft, path)
    except OSError:
        draft.unlink(missing_ok=True)
        raise


async def targets(shelf: Shelf) -> list[dict[str, Any]]:
    """In the form of Prometheus' http_sd: every rank of every run that is under way."""
    return [target async for standing in _running(shelf) for target in _beside(standing.path)]


async def _running(shelf: Shelf) -> AsyncIterator[Standing]:
    for standing in shelf.standings().values():
        try:
            await catch_up(standing)
        except (OSError, ValueError):  # no run log, or one that is not whole yet
            continue
        newest = standing.time or (standing.run.started if standing.run else 0.0)
        if standing.state == "running" and time.time() - newest < _ABANDONED_SECONDS:
            yield standing


def _beside(run_log: Path) -> Iterator[dict[str, Any]]:
    for path in sorted(run_log.parent.glob(f"{glob.escape(run_log.stem)}.*{SUFFIX}")):
        if re.fullmatch(r"\.\d+", path.name[len(run_log.stem) : -len(SUFFIX)]):
            try:
                yield from json.loads(path.read_text(encoding="utf-8"))
            except (OSError, ValueError):  # its rank has just ended
                continue
