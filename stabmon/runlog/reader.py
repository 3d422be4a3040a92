"""Reads a run log, also one that is being written."""

from __future__ import annotations

import os
import sqlite3
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import cast
from urllib.parse import quote

from stabmon.records import Alert, Event, Run, RunState, Snapshot
from stabmon.runlog.encoding import APPLICATION_ID, FORMAT, SUFFIX, load, load_layout, to_values

WHOLE_STEPS = 6_000
"""A run of up to so many steps is shown whole after a resume, a longer one with about as many: some seconds, since all
detectors together look at a step in half a millisecond to one."""
EDGE_STEPS = 2000
"""Of a longer run, shown at either end: more than any detector looks back, but for those that look at all."""
SAMPLED_EVERY = 50
"""Steps at whose multiples, by default, everything is read."""


@dataclass(frozen=True)
class Recorded:
    """A run log as it stood when it was opened."""

    path: Path
    run: Run
    state: RunState
    """`running` also where the process died without a word."""
    alerts: list[Alert]
    """As they were raised live, those of the main line."""

    def feeds(self) -> Iterator[tuple[Snapshot, list[Event]]]:
        """What pipeline.feed got, in order; the main line only."""
        return self._feeds("1")

    def recalled(self) -> Iterator[tuple[Snapshot, list[Event]]]:
        """What a resume shows the detectors: a run of up to 6,000 steps as in `feeds`; of a longer one its first
        and last 2,000 steps and about 2,000 between them, evenly spaced, with all events.
        """
        with reading(self.path) as db:
            kept = main_line(db)
            end = max((step for row, step in db.execute("SELECT row, step FROM scalars") if kept(row, step)), default=0)
        if end <= WHOLE_STEPS:
            return self.feeds()
        stride = SAMPLED_EVERY * ceil(end / (EDGE_STEPS * SAMPLED_EVERY))
        return self._feeds(f"step <= {EDGE_STEPS} OR step > {end - EDGE_STEPS} OR step % {stride} = 0")

    def _feeds(self, which: str) -> Iterator[tuple[Snapshot, list[Event]]]:
        """Of the rows that fit; events of those before that do not come with the next one that does."""
        with reading(self.path) as db:
            layouts = {segment: load_layout(text, self.path) for segment, text in db.execute("SELECT * FROM segments")}
            kept = main_line(db)
            events = deque(
                (row, record)
                for row, step, record in db.execute(
                    "SELECT row, step, record FROM events JOIN scalars USING (row) ORDER BY row, events.rowid"
                )
                if kept(row, step)
            )
            for row, segment, step, unix, scalars, vector in db.execute(
                "SELECT row, segment, step, time, scalars.data, vectors.data FROM scalars LEFT JOIN vectors USING (row)"
                f" WHERE {which} ORDER BY row"
            ):
                if kept(row, step):
                    layout, told = layouts[segment], []
                    while events and events[0][0] <= row:
                        told.append(load(Event, events.popleft()[1]))
                    yield Snapshot(step, unix, to_values(layout, scalars, vector), layout), told

    def blob(self, name: str) -> bytes | None:
        """The newest that was kept under that name."""
        with reading(self.path) as db:
            found = db.execute("SELECT data FROM blobs WHERE name = ? ORDER BY step DESC LIMIT 1", (name,)).fetchone()
        return found[0] if found else None


def read(path: Path | str) -> Recorded:
    """Opens a run log, also one that is being written.

    FileNotFoundError: there is none. ValueError: not a run log, or one that this version cannot read.
    """
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"there is no run log {path}; run logs end in {SUFFIX}")
    with reading(path) as db:
        record, state = db.execute("SELECT record, state FROM run").fetchone()
        kept = main_line(db)
        found = [(row, load(Alert, text)) for row, text in db.execute("SELECT row, record FROM alerts ORDER BY rowid")]
    alerts = [alert for row, alert in found if kept(row, alert.step)]
    return Recorded(path, load(Run, record), cast(RunState, state), alerts)


def main_line(db: sqlite3.Connection) -> Callable[[int, int], bool]:
    """Whether a row at a step is on the main line: no later branch left it behind."""
    branches: list[tuple[int, int]] = db.execute("SELECT first_row, step FROM branches").fetchall()
    if not branches:
        return lambda row, step: True
    return lambda row, step: all(step <= left_at for first_row, left_at in branches if row < first_row)


def has_table(db: sqlite3.Connection, name: str) -> bool:
    """Earlier versions wrote fewer."""
    return db.execute("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?", (name,)).fetchone() is not None


@contextmanager
def reading(path: Path, patience: float = 5.0) -> Iterator[sqlite3.Connection]:
    """A read-only connection on one consistent state of a file that is checked to be a run log we can read.

    `patience`: seconds until somebody who holds the file is given up.
    """
    try:
        with closing(_opened(path, patience)) as db:
            if db.execute("PRAGMA application_id").fetchone() != (APPLICATION_ID,):
                raise ValueError(f"{path} is not a stabmon run log")
            (version,) = db.execute("PRAGMA user_version").fetchone()
            if version != FORMAT:
                raise ValueError(
                    f"{path} has run log format {version}, this stabmon reads {FORMAT}; use the stabmon that wrote it"
                )
            yield db
    except sqlite3.DatabaseError as error:
        raise ValueError(f"{path} is not a readable stabmon run log: {error}. {_advice(path)}") from error
    except (LookupError, TypeError, AttributeError, ValueError) as error:
        if isinstance(error, ValueError) and path.name in str(error):
            raise
        # What only looks like a run log is one row of a list that says so, and no end of the list.
        raise ValueError(f"{path} is damaged and cannot be read ({type(error).__name__}: {error})") from error


def _opened(path: Path, patience: float) -> sqlite3.Connection:
    """Of a run that was killed, and lies without its side files where we cannot write, SQLite is told that nobody
    writes: it could not make them to find that out."""
    try:
        return _begun(path, patience, "mode=ro")
    except sqlite3.OperationalError as error:
        cannot_make = error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN)
        if not cannot_make or _wal(path).exists() or os.access(path.parent, os.W_OK):
            raise
        return _begun(path, patience, "immutable=1")


def _begun(path: Path, patience: float, how: str) -> sqlite3.Connection:
    """In a transaction, and with the file looked at."""
    db = sqlite3.connect(f"file:{quote(os.fsencode(path))}?{how}", patience, uri=True, isolation_level=None)
    try:
        db.execute("BEGIN")
        db.execute("SELECT 1 FROM sqlite_master").fetchone()
    except sqlite3.Error:
        db.close()
        raise
    return db


def _wal(path: Path) -> Path:
    return path.with_name(f"{path.name}-wal")


def _advice(path: Path) -> str:
    if _wal(path).exists() and not os.access(path.parent, os.W_OK):
        return f"Copy it and {_wal(path).name} to a folder in which you may write"
    return "Of a run that still trains, copy its -wal file as well"
