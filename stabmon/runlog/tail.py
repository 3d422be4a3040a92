"""Follows a run log while it is written: each poll reads only what came since the last one."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, cast

import numpy as np

from stabmon.catalog import Array
from stabmon.records import Alert, Event, Layout, Run, RunState, Snapshot
from stabmon.runlog.encoding import load, load_layout
from stabmon.runlog.reader import main_line, reading

POLL_ROWS = 5000
"""Rows that one poll reads at most: about 20 ms, after which others get their turn."""

_Row = tuple[int, int, int, float, bytes, bytes | None]
_Ints = np.ndarray[tuple[int], np.dtype[np.int64]]
_SELECT = (
    "SELECT row, segment, step, time, scalars.data, vectors.data FROM scalars LEFT JOIN vectors USING (row)"
    " WHERE row > ? AND row <= ? ORDER BY row LIMIT ?"
)


@dataclass(frozen=True)
class Chunk:
    """Rows of one layout, in order. `chunk[statistic]` is float32[site, row], as a snapshot's is float32[site]."""

    layout: Layout
    rows: _Ints
    steps: _Ints
    times: np.ndarray[tuple[int], np.dtype[np.float64]]
    values: Array
    """float32[slot, row]"""
    sampled: np.ndarray[tuple[int], np.dtype[np.bool_]]
    """bool[row]: whether any per-layer value was read."""

    def __getitem__(self, statistic: str) -> Array:
        with np.errstate(all="ignore"):  # a ratio of two infinities is not a number, and not read
            # Formulas work element by element, so that rows may come along as a second axis.
            return Snapshot(0, 0.0, self.values, self.layout)[statistic]

    def only(self, kept: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> Chunk:
        """Some of the rows; kept: bool[row]."""
        values = self.values[:, kept]
        return Chunk(self.layout, self.rows[kept], self.steps[kept], self.times[kept], values, self.sampled[kept])

    def last(self) -> Snapshot:
        """The newest row, with the value last read wherever it has none itself."""
        read = np.where(np.isnan(self.values), 0, np.arange(len(self.rows))).max(axis=1)
        values = self.values[np.arange(len(read)), read]
        return Snapshot(int(self.steps[-1]), float(self.times[-1]), values, self.layout)


@dataclass(frozen=True)
class News:
    """What a poll found. Alerts and events come with the row that they belong to."""

    run: Run
    state: RunState
    chunks: Sequence[Chunk]
    alerts: Sequence[tuple[int, Alert]]
    events: Sequence[tuple[int, Event]]
    more: bool
    """There are further rows: poll again."""
    restarted: bool
    """Forget what earlier polls told: the run was resumed from an earlier step, or another one has taken its file."""


class Tail:
    """One run log, read from its first row on, or with `last` from the last so many rows on, but with all its alerts.

    Only the main line is told.
    """

    def __init__(self, path: Path, last: int | None = None) -> None:
        self.path = path
        self._last = last
        self._row = 0
        self._mark: tuple[float, int] | None = None
        self._layouts: dict[int, Layout] = {}

    def poll(self) -> News:
        """What came since the last poll. FileNotFoundError, ValueError: as `stabmon.runlog.read`."""
        if not self.path.exists():
            raise FileNotFoundError(f"there is no run log {self.path}")
        with reading(self.path) as db:
            record, state = db.execute("SELECT record, state FROM run").fetchone()
            run = load(Run, record)
            (branches,) = db.execute("SELECT COUNT(*) FROM branches").fetchone()
            restarted = self._mark not in (None, (run.started, branches))
            self._mark = (run.started, branches)
            if restarted:
                self._row, self._layouts = 0, {}
            return self._news(db, run, cast(RunState, state), restarted)

    def between(self, first_row: int, last_row: int) -> Sequence[Chunk]:
        """Those rows again, both included."""
        with reading(self.path) as db:
            return self._chunks(db, db.execute(_SELECT, (first_row - 1, last_row, -1)).fetchall())

    def _news(self, db: sqlite3.Connection, run: Run, state: RunState, restarted: bool) -> News:
        (newest,) = db.execute("SELECT COALESCE(MAX(row), 0) FROM scalars").fetchone()
        begin = self._row
        if self._last is not None:
            begin = max(begin, newest - self._last)
        found = db.execute(_SELECT, (begin, newest, POLL_ROWS)).fetchall()
        last = found[-1][0] if found else newest
        kept, span = main_line(db), (self._row, last)
        told = "SELECT row, record FROM {} WHERE row > ? AND row <= ? ORDER BY rowid"
        alerts = [(row, load(Alert, text)) for row, text in db.execute(told.format("alerts"), span)]
        events = [(row, load(Event, text)) for row, text in db.execute(told.format("events"), span)]
        self._row = last
        return News(
            run,
            state,
            self._chunks(db, found),
            [(row, alert) for row, alert in alerts if kept(row, alert.step)],
            [(row, event) for row, event in events if kept(row, event.step)],
            last < newest,
            restarted,
        )

    def _chunks(self, db: sqlite3.Connection, found: list[_Row]) -> list[Chunk]:
        kept = main_line(db)
        grouped = groupby((row for row in found if kept(row[0], row[2])), key=lambda row: row[1])
        return [_chunk(self._layout(db, segment), list(rows)) for segment, rows in grouped]

    def _layout(self, db: sqlite3.Connection, segment: int) -> Layout:
        if segment not in self._layouts:
            (text,) = db.execute("SELECT layout FROM segments WHERE segment = ?", (segment,)).fetchone()
            self._layouts[segment] = load_layout(text, self.path)
        return self._layouts[segment]


def _chunk(layout: Layout, found: list[_Row]) -> Chunk:
    values = np.full((len(layout.columns), len(found)), np.nan, dtype=np.float32)
    values[layout.scalar_slots] = _matrix([row[4] for row in found]).T
    sampled = np.array([row[5] is not None for row in found])
    if sampled.any():
        read = _matrix([row[5] for row in found if row[5] is not None])
        values[np.ix_(layout.layer_slots, np.flatnonzero(sampled))] = read.T
    rows, steps = (np.array([row[i] for row in found], dtype=np.int64) for i in (0, 2))
    return Chunk(layout, rows, steps, np.array([row[3] for row in found]), values, sampled)


def _matrix(blobs: list[bytes]) -> np.ndarray[tuple[int, ...], np.dtype[Any]]:
    """float32[row, slot]"""
    return np.frombuffer(b"".join(blobs), dtype="<f4").reshape(len(blobs), -1)
