"""What people said of alerts, kept in the run log by whoever serves it; the training does not write them."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import closing, suppress
from dataclasses import asdict, dataclass, fields
from os import utime
from pathlib import Path
from typing import get_args

from stabmon.records import MarkKind
from stabmon.runlog.encoding import MARKS
from stabmon.runlog.reader import has_table, reading

_WAIT_SECONDS = 0.1
"""The training holds the file for some milliseconds a second."""


@dataclass(frozen=True, slots=True)
class Mark:
    """What a person said of an alert, at a step."""

    alert: str
    """Its id."""
    kind: MarkKind
    step: int
    time: float
    until: int | None = None
    """Of a mute of its detector: the last step."""
    note: str = ""

    @property
    def detector(self) -> str:
        return self.alert.rpartition(":")[0]


_FIELDS = tuple(each.name for each in fields(Mark))


def add_mark(path: Path, mark: Mark) -> None:
    """Keep it. FileNotFoundError: there is no run log; PermissionError: it cannot be written; TimeoutError: somebody
    holds it; ValueError: it is none."""
    if not path.exists():
        raise FileNotFoundError(f"there is no run log {path}")
    with reading(path):
        before = path.stat()
    try:
        with closing(sqlite3.connect(path, timeout=_WAIT_SECONDS, isolation_level=None)) as db:
            db.execute("BEGIN IMMEDIATE")
            db.execute(MARKS)
            db.execute("INSERT INTO marks (record) VALUES (?)", (json.dumps(asdict(mark)),))
            db.execute("COMMIT")
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            raise TimeoutError(f"{path.name} is being written; try again in a moment") from None
        raise PermissionError(
            f"{path.name} cannot be written here ({error}); serve its folder where it is writable"
        ) from None
    # A resume without a name goes on with the run log that was written to last: that must not be this one now. A
    # microsecond later, so that whoever looks at the time alone reads it again.
    with suppress(OSError):
        utime(path, ns=(before.st_atime_ns, before.st_mtime_ns + 1000))


def marks_in(db: sqlite3.Connection) -> list[Mark]:
    """All that this version knows, oldest first: others may have written more."""
    if not has_table(db, "marks"):
        return []
    found = (_known(text) for (text,) in db.execute("SELECT record FROM marks ORDER BY id"))
    return [mark for mark in found if mark]


def _known(text: str) -> Mark | None:
    """None: it says something else."""
    try:
        record = json.loads(text)
        mark = Mark(**{name: record[name] for name in _FIELDS if name in record})
    except (ValueError, TypeError):
        return None
    return mark if mark.kind in get_args(MarkKind) else None


def marks_of(path: Path, patience: float = 5.0) -> list[Mark]:
    """As `marks_in`; patience, errors: those of `stabmon.runlog.reading`."""
    with reading(path, patience) as db:
        return marks_in(db)


def standing(marks: Iterable[Mark]) -> dict[str, Mark]:
    """By alert, the last word."""
    latest = {mark.alert: mark for mark in marks}
    return {alert: mark for alert, mark in latest.items() if mark.kind != "none"}


def muted(marks: Sequence[Mark]) -> dict[str, int]:
    """Detectors that were muted, and the last step of that."""
    found: dict[str, int] = {}
    for mark in standing(marks).values():
        if mark.kind == "muted" and mark.until is not None:
            found[mark.detector] = max(mark.until, found.get(mark.detector, 0))
    return found
