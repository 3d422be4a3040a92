"""Reads a run log, also one that is being written."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import cast
from urllib.parse import quote

from stabmon.records import Alert, Event, Run, RunState, Snapshot
from stabmon.runlog.encoding import APPLICATION_ID, FORMAT, SUFFIX, load, load_layout, to_values


@dataclass(frozen=True)
class Recorded:
    """A run log as it stood when it was opened."""

    path: Path
    run: Run
    state: RunState
    """`running` also where the process died without a word."""
    alerts: list[Alert]
    """As they were raised live, those of the main line."""

    def feeds(self, after: int = 0) -> Iterator[tuple[Snapshot, list[Event]]]:
        """What pipeline.feed got, in order, of the steps after that one; the main line only."""
        with reading(self.path) as db:
            layouts = {segment: load_layout(text, self.path) for segment, text in db.execute("SELECT * FROM segments")}
            events: dict[int, list[Event]] = {}
            for row, record in db.execute("SELECT row, record FROM events ORDER BY rowid"):
                events.setdefault(row, []).append(load(Event, record))
            kept = main_line(db)
            for row, segment, step, unix, scalars, vector in db.execute(
                "SELECT row, segment, step, time, scalars.data, vectors.data FROM scalars LEFT JOIN vectors USING (row)"
                " WHERE step > ? ORDER BY row",
                (after,),
            ):
                layout = layouts[segment]
                if kept(row, step):
                    yield Snapshot(step, unix, to_values(layout, scalars, vector), layout), events.get(row, [])

    def blob(self, name: str) -> bytes | None:
        """The newest that was kept under that name."""
        with reading(self.path) as db:
            found = db.execute("SELECT data FROM blobs WHERE name = ? ORDER BY step DESC LIMIT 1", (name,)).fetchone()
        return found[0] if found else None


def read(path: Path) -> Recorded:
    """Opens a run log, also one that is being written.

    FileNotFoundError: there is none. ValueError: not a run log, or one that this version cannot read.
    """
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
    return lambda row, step: all(step <= left_at for first_row, left_at in branches if row < first_row)


@contextmanager
def reading(path: Path) -> Iterator[sqlite3.Connection]:
    """A read-only connection on one consistent state of a file that is checked to be a run log we can read."""
    try:
        with closing(sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True, isolation_level=None)) as db:
            db.execute("BEGIN")
            if db.execute("PRAGMA application_id").fetchone() != (APPLICATION_ID,):
                raise ValueError(f"{path} is not a stabmon run log")
            (version,) = db.execute("PRAGMA user_version").fetchone()
            if version != FORMAT:
                raise ValueError(
                    f"{path} has run log format {version}, this stabmon reads {FORMAT}; use the stabmon that wrote it"
                )
            yield db
    except sqlite3.DatabaseError as error:
        raise ValueError(
            f"{path} is not a readable stabmon run log: {error}. Of a run that still trains, copy its -wal file as well"
        ) from error
