"""Follows a run log while it is written: each poll reads only what came since the last one."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np

from stabmon.catalog import STATISTICS, Array
from stabmon.records import Alert, Event, Layout, Run, RunState, Snapshot
from stabmon.runlog.encoding import load, load_layout
from stabmon.runlog.marks import Mark, marks_in
from stabmon.runlog.reader import has_table, main_line, reading
from stabmon.runlog.told import Told, told_in

POLL_ROWS = 5000
_POLL_VALUES = 200_000
"""One poll reads at most so many rows, or as many as make so many values: about 20 ms, after which others get their
turn."""

_Row = tuple[int, int, int, float, bytes, bytes | None, bytes | None]
_Ints = np.ndarray[tuple[int], np.dtype[np.int64]]
_SELECT = (
    "SELECT row, segment, step, time, scalars.data, {}, {} FROM scalars {} {}"
    " WHERE row > ? AND row <= ? ORDER BY row LIMIT ?"
)
_NO_VALUES: Array = np.empty((0, 0), dtype=np.float32)
_SCORES = ("scores.data", "LEFT JOIN scores USING (row)")
_NOTHING = ("NULL", "")
Which = Literal["all", "model", "sampled"]
"""All rows with all they have; all with the whole-model values alone; those alone that have per-layer values."""
_VECTORS: Mapping[Which, tuple[str, str]] = {
    "all": ("vectors.data", "LEFT JOIN vectors USING (row)"),
    "model": _NOTHING,
    "sampled": ("vectors.data", "JOIN vectors USING (row)"),
}


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
    needs: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """The detectors that judged these rows, and what they look at."""
    scores: Array = field(default_factory=lambda: _NO_VALUES)
    """float32[detector, row]: what they scored; NaN where it is not known, or what they look at first was not read."""

    def __getitem__(self, statistic: str) -> Array:
        with np.errstate(all="ignore"):  # a ratio of two infinities is not a number, and not read
            # Formulas work element by element, so that rows may come along as a second axis.
            return Snapshot(0, 0.0, self.values, self.layout)[statistic]

    def only(self, kept: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> Chunk:
        """Some of the rows; kept: bool[row]."""
        return replace(
            self,
            rows=self.rows[kept],
            steps=self.steps[kept],
            times=self.times[kept],
            values=self.values[:, kept],
            sampled=self.sampled[kept],
            scores=self.scores[:, kept] if self.needs else self.scores,
        )

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
    marks: Sequence[Mark]
    """All there are, oldest first."""
    told: Sequence[Told]
    """Likewise."""
    restarted: bool
    """Forget what earlier polls told: the run was resumed from an earlier step, or another one has taken its file."""
    resumed_at: int
    """The first row of the process that wrote last, where the run was resumed; else 0."""


class Tail:
    """One run log, read from its first row on, or with `last` from the last so many rows on, without values per layer,
    but with all its alerts.

    Only the main line is told.
    """

    def __init__(self, path: Path, last: int | None = None) -> None:
        self.path = path
        self._last = last
        self._row = 0
        self._mark: tuple[float, int] | None = None
        self._layouts: dict[int, Layout] = {}
        self._has_scores = False
        self._event = 0
        """The last event that was told."""

    def poll(self) -> News:
        """What came since the last poll. FileNotFoundError, ValueError: as `stabmon.runlog.read`."""
        if not self.path.exists():
            raise FileNotFoundError(f"there is no run log {self.path}")
        with reading(self.path) as db:
            run, state, mark = _identity(db)
            restarted = self._mark not in (None, mark)
            self._mark = mark
            if restarted:
                self._row, self._layouts, self._has_scores, self._event = 0, {}, False, 0
            return self._news(db, run, state, restarted)

    def stamp(self) -> tuple[int, ...]:
        """Differs once the run log was written to: SQLite writes to the file itself or to its write-ahead log."""
        found: list[int] = []
        for file in (str(self.path), f"{self.path}-wal"):
            with suppress(FileNotFoundError):
                status = os.stat(file)
                found += [status.st_ino, status.st_mtime_ns, status.st_size]
        return tuple(found)

    def between(self, first_row: int, last_row: int, which: Which = "all") -> Sequence[Chunk]:
        """Those rows again, both included; none where another run has taken the file since the last poll."""
        with reading(self.path) as db:
            if _identity(db)[2] != self._mark:
                return []
            return self._chunks(db, self._rows(db, first_row - 1, last_row, -1, which), which == "model")

    def chunks(self, size: int, which: Which = "all") -> Iterator[Sequence[Chunk]]:
        """All rows again, so many at a time; a new connection for each, so that nobody waits for a slow reader."""
        for begin in range(0, self._row, size):
            yield self.between(begin + 1, min(begin + size, self._row), which)

    def sampled(self, count: int) -> Sequence[Chunk]:
        """The whole-model values of so many rows at most, evenly spaced from the first to the newest."""
        wanted = np.unique(np.linspace(1, self._row, count).round().astype(int)).tolist() if self._row else []
        among = ", ".join("?" * len(wanted))
        select = f"SELECT row, segment, step, time, data, NULL, NULL FROM scalars WHERE row IN ({among}) ORDER BY row"
        with reading(self.path) as db:
            found = db.execute(select, wanted).fetchall() if _identity(db)[2] == self._mark else []
            return self._chunks(db, found, narrow=True)

    def _rows(self, db: sqlite3.Connection, after: int, last: int, most: int, which: Which = "all") -> list[_Row]:
        self._has_scores = self._has_scores or has_table(db, "scores")
        vectors, scores = _VECTORS[which], _SCORES if self._has_scores else _NOTHING
        select = _SELECT.format(vectors[0], scores[0], vectors[1], scores[1])
        return db.execute(select, (after, last, most)).fetchall()

    def _most(self, db: sqlite3.Connection, after: int) -> int:
        """How many rows to read at once from there on."""
        found = db.execute("SELECT segment FROM scalars WHERE row > ? ORDER BY row LIMIT 1", (after,)).fetchone()
        return min(POLL_ROWS, _POLL_VALUES // max(1, len(self._layout(db, found[0]).columns))) if found else 0

    def _news(self, db: sqlite3.Connection, run: Run, state: RunState, restarted: bool) -> News:
        (newest,) = db.execute("SELECT COALESCE(MAX(row), 0) FROM scalars").fetchone()
        begin = self._row
        if self._last is not None:
            begin = max(begin, newest - self._last)
        which: Which = "all" if self._last is None else "model"
        found = self._rows(db, begin, newest, self._most(db, begin), which)
        last = found[-1][0] if found else newest
        kept, span = main_line(db), (self._row, last)
        told = "SELECT row, record FROM alerts WHERE row > ? AND row <= ? ORDER BY rowid"
        alerts = [(row, load(Alert, text)) for row, text in db.execute(told, span)]
        events = self._events(db, last)
        self._row = last
        return News(
            run,
            state,
            self._chunks(db, found),
            [(row, alert) for row, alert in alerts if kept(row, alert.step)],
            [(row, event) for row, event in events if kept(row, event.step)],
            last < newest,
            marks_in(db),
            told_in(db),
            restarted,
            db.execute("SELECT COALESCE(MAX(first_row), 0) FROM branches").fetchone()[0],
        )

    def _events(self, db: sqlite3.Connection, last: int) -> list[tuple[int, Event]]:
        """Those that are new; some come after their row, or before there is any."""
        told = "SELECT rowid, row, record FROM events WHERE rowid > ? AND row <= ? ORDER BY rowid"
        found = db.execute(told, (self._event, last)).fetchall()
        if found:
            self._event = found[-1][0]
        return [(row, load(Event, text)) for _, row, text in found]

    def _chunks(self, db: sqlite3.Connection, found: list[_Row], narrow: bool = False) -> list[Chunk]:
        """Of the main line; narrow: with a layout of the whole-model values alone."""
        kept, needs = main_line(db), self._needs(db)
        found = [row for row in found if kept(row[0], row[2])]
        if not found:
            return []
        judges = np.searchsorted([first for first, _ in needs], [row[0] for row in found], side="right") - 1
        changed = np.diff([row[1] for row in found]) != 0
        bounds = [0, *(np.flatnonzero(changed | (np.diff(judges) != 0)) + 1).tolist(), len(found)]
        return [
            _chunk(self._layout(db, found[i][1]), found[i:j], needs[judges[i]][1], narrow) for i, j in pairwise(bounds)
        ]

    def _needs(self, db: sqlite3.Connection) -> list[tuple[int, Mapping[str, Sequence[str]]]]:
        """Who judged, from which row on; from the first row on nobody, in run logs of earlier versions."""
        found = db.execute("SELECT first_row, needs FROM detectors ORDER BY first_row") if self._has_scores else ()
        return [(0, {}), *((row, json.loads(text)) for row, text in found)]

    def _layout(self, db: sqlite3.Connection, segment: int) -> Layout:
        if segment not in self._layouts:
            (text,) = db.execute("SELECT layout FROM segments WHERE segment = ?", (segment,)).fetchone()
            self._layouts[segment] = load_layout(text, self.path)
        return self._layouts[segment]


def _identity(db: sqlite3.Connection) -> tuple[Run, RunState, tuple[float, int]]:
    """The run, its state, and what tells it from another one and from itself before a resume."""
    record, state = db.execute("SELECT record, state FROM run").fetchone()
    (branches,) = db.execute("SELECT COUNT(*) FROM branches").fetchone()
    run = load(Run, record)
    return run, cast(RunState, state), (run.started, branches)


def _chunk(layout: Layout, found: list[_Row], needs: Mapping[str, Sequence[str]], narrow: bool) -> Chunk:
    if narrow:
        layout = Layout(tuple(layout.columns[slot] for slot in layout.scalar_slots), ())
    values = np.full((len(layout.columns), len(found)), np.nan, dtype=np.float32)
    values[layout.scalar_slots] = _matrix([row[4] for row in found]).T
    sampled = np.array([row[5] is not None for row in found])
    if sampled.any():
        read = _matrix([row[5] for row in found if row[5] is not None])
        values[np.ix_(layout.layer_slots, np.flatnonzero(sampled))] = read.T
    rows, steps = (np.array([row[i] for row in found], dtype=np.int64) for i in (0, 2))
    times = np.array([row[3] for row in found], dtype=np.float64)
    chunk = Chunk(layout, rows, steps, times, values, sampled, needs)
    return replace(chunk, scores=_scores(chunk, [row[6] for row in found]))


def _scores(chunk: Chunk, blobs: list[bytes | None]) -> Array:
    """float32[detector, row]. Where a detector's first statistic was not read it scored 0, which says nothing."""
    scores = np.full((len(chunk.needs), len(blobs)), np.nan, dtype=np.float32)
    scored = np.array([blob is not None and len(blob) == 4 * len(chunk.needs) for blob in blobs])
    if not scored.any():
        return scores
    scores[:, scored] = _matrix([blob for blob, known in zip(blobs, scored, strict=True) if blob and known]).T
    for score, needs in zip(scores, chunk.needs.values(), strict=True):
        first = chunk[needs[0]] if needs and needs[0] in STATISTICS else _NO_VALUES
        score[np.isnan(first).all(axis=0) if first.size else slice(None)] = np.nan
    return scores


def _matrix(blobs: list[bytes]) -> np.ndarray[tuple[int, ...], np.dtype[Any]]:
    """float32[row, slot]"""
    return np.frombuffer(b"".join(blobs), dtype="<f4").reshape(len(blobs), -1)
