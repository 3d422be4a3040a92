"""Our own run log, also one that is being written."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from threading import Event as Stop

from stabmon.readers.reading import Asked, ReadError
from stabmon.readers.source import POLL_SECONDS
from stabmon.records import Event, Snapshot
from stabmon.runlog import Recorded, read
from stabmon.runlog.tail import News, Tail

NAME = "stabmon run log"
MAGIC = b"SQLite format 3\0"


def check(path: Path, asked: Asked, run: str) -> None:
    """ReadError: a column was named, and there is only the loss and the step that the training told; or another run."""
    for name in ("loss", "step"):
        if (given := getattr(asked, name)) not in (None, name):
            raise ReadError(
                f"{path} is a {NAME} and has no {given!r}; its {name} is the one that the training told, so leave "
                f"--{name} out"
            )
    if asked.run not in (None, run, path.stem):
        raise ReadError(f"{path} is a {NAME} of one run, {run!r}, and has no {asked.run!r}; leave the run's name out")


def recorded(path: Path) -> Recorded:
    try:
        return read(path)
    except (ValueError, TypeError, OSError, sqlite3.Error) as error:
        raise ReadError(str(error)) from None


def followed(path: Path, stopped: Stop) -> Iterator[tuple[Snapshot, list[Event]]]:
    """Rows as they come, those of a later branch after those that it leaves behind, until the run has ended."""
    tail, last = Tail(path), -1
    while not stopped.is_set():
        news = tail.poll()
        for row, snapshot, events in _rows(news):
            if row > last:
                last = row
                yield snapshot, events
        if not news.more:
            if news.state != "running":
                return
            stopped.wait(POLL_SECONDS)


def _rows(news: News) -> Iterator[tuple[int, Snapshot, list[Event]]]:
    for chunk in news.chunks:
        for i, row in enumerate(chunk.rows.tolist()):
            events = [event for at, event in news.events if at == row]
            snapshot = Snapshot(int(chunk.steps[i]), float(chunk.times[i]), chunk.values[:, i].copy(), chunk.layout)
            yield row, snapshot, events
