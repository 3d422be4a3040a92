"""What others than the training write into a run log, each in a table of its own, beside the rows of the training."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from contextlib import closing, suppress
from os import utime
from pathlib import Path
from typing import Any

from stabmon.runlog.reader import has_table, reading

_WAIT_SECONDS = 0.1
"""The training holds the file for some milliseconds a second."""


def append(path: Path, table: str, record: Mapping[str, Any]) -> None:
    """A row of that table, which is made if need be. FileNotFoundError: there is no run log; PermissionError: it cannot
    be written; TimeoutError: somebody holds it; ValueError: it is none."""
    if not path.exists():
        raise FileNotFoundError(f"there is no run log {path}")
    with reading(path):
        before = path.stat()
    try:
        with closing(sqlite3.connect(path, timeout=_WAIT_SECONDS, isolation_level=None)) as db:
            db.execute("BEGIN IMMEDIATE")
            db.execute(f"CREATE TABLE IF NOT EXISTS {table} (id INTEGER PRIMARY KEY, record TEXT NOT NULL)")
            db.execute(f"INSERT INTO {table} (record) VALUES (?)", (json.dumps(record),))
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


def records_in(db: sqlite3.Connection, table: str) -> list[str]:
    """Their JSON, oldest first; earlier versions made no such table."""
    if not has_table(db, table):
        return []
    return [text for (text,) in db.execute(f"SELECT record FROM {table} ORDER BY id")]
