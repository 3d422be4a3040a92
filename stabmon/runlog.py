"""The run log: all that one run's pipeline was fed, in one SQLite file. The writer is a sink, the reader feeds replay.

`scalars` has a row for every feed, `vectors` one where any per-layer value was read; a blob is little-endian float32 in
the order of `layout.scalar_slots` / `layout.layer_slots`, bit for bit. `row` counts feeds and orders everything.
"""

from __future__ import annotations

import json
import os
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, fields
from math import isfinite
from pathlib import Path
from typing import Any, TypeVar, cast
from urllib.parse import quote

import numpy as np

from stabmon.catalog import STATISTICS, Array
from stabmon.records import PART_FAILED, Alert, Event, Layout, Run, RunState, Site, Snapshot

SUFFIX = ".stabmon"
FORMAT = 1
"""Raised whenever an older reader would misread the file; kept in SQLite's `user_version`."""
APPLICATION_ID = 0x53746D6E
"""Marks the file as ours ("Stmn"); kept in SQLite's `application_id`."""

_SCHEMA = f"""
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = {FORMAT};
CREATE TABLE run (record TEXT NOT NULL, state TEXT NOT NULL);
CREATE TABLE segments (segment INTEGER PRIMARY KEY, layout TEXT NOT NULL);
CREATE TABLE scalars (row INTEGER PRIMARY KEY, segment INTEGER NOT NULL, step INTEGER NOT NULL, time REAL NOT NULL,
                      data BLOB NOT NULL);
CREATE TABLE vectors (row INTEGER PRIMARY KEY, data BLOB NOT NULL);
CREATE TABLE events (row INTEGER NOT NULL, record TEXT NOT NULL);
CREATE TABLE alerts (row INTEGER NOT NULL, record TEXT NOT NULL);
"""
_COMMIT_SECONDS = 1.0
_BUSY_SECONDS = 0.05
"""Training waits no longer than this for a reader; what could not be committed goes with the next commit."""
_LOCAL = {"ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "tmpfs", "overlay", "f2fs", "apfs", "hfs"}
"""File systems on which write-ahead logging is safe: its shared memory needs one machine."""

_Record = TypeVar("_Record", Run, Alert, Event)


def path_of(folder: Path, run: str) -> Path:
    """Where the run log of that run lies."""
    return folder / f"{run}{SUFFIX}"


def alert_summary(alert: Alert) -> dict[str, Any]:
    """What `--json` prints of an alert: JSON types only; evidence that is not finite becomes null."""
    return {
        "detector": alert.detector,
        "severity": alert.severity,
        "state": alert.state,
        "step": alert.step,
        "layer": alert.layer,
        "message": alert.message,
        "evidence": {name: float(v) if isfinite(v) else None for name, v in alert.evidence.items()},
    }


class RunLogWriter:
    """A sink. Commits every second, and at once on an alert or a failed part: those must outlive a crash.

    Raises where the file cannot be made: FileExistsError (never overwrites), else an OSError naming the folder.
    """

    name = "run_log"

    def __init__(self, path: Path, run: Run, clock: Callable[[], float] = time.monotonic) -> None:
        self.path = path
        self._clock = clock
        _create(path)
        # The run may be closed from another thread than the training's (exit handlers); they never overlap.
        self._db = sqlite3.connect(path, timeout=_BUSY_SECONDS, check_same_thread=False)
        self._db.execute(f"PRAGMA journal_mode = {'WAL' if _is_local(path.parent) else 'TRUNCATE'}")
        self._db.execute("PRAGMA synchronous = NORMAL")
        self._db.executescript(f"BEGIN; {_SCHEMA}")
        self._db.execute("INSERT INTO run VALUES (?, 'running')", (_dump(run),))
        self._db.commit()
        self._committed = clock()
        self._layout: Layout | None = None
        self._segment = 0
        self._row = 0

    def emit(self, snapshot: Snapshot, alerts: Sequence[Alert], events: Sequence[Event]) -> None:
        self._row += 1
        self._write_values(snapshot)
        self._db.executemany("INSERT INTO events VALUES (?, ?)", [(self._row, _dump(e)) for e in events])
        self._db.executemany("INSERT INTO alerts VALUES (?, ?)", [(self._row, _dump(a)) for a in alerts])
        urgent = bool(alerts) or any(e.kind == PART_FAILED for e in events)
        if urgent or self._clock() - self._committed >= _COMMIT_SECONDS:
            self._commit()

    def close(self, state: RunState) -> None:
        """Stores the final state and leaves one plain file, without side files."""
        with closing(self._db) as db:
            db.execute("PRAGMA busy_timeout = 5000")
            db.execute("UPDATE run SET state = ?", (state,))
            db.commit()
            with suppress(sqlite3.OperationalError):  # a reader holds it open: then it stays in WAL mode
                db.execute("PRAGMA journal_mode = DELETE")

    def _write_values(self, snapshot: Snapshot) -> None:
        layout = snapshot.layout
        if layout is not self._layout and layout != self._layout:
            self._segment += 1
            self._db.execute("INSERT INTO segments VALUES (?, ?)", (self._segment, _dump_layout(layout)))
        self._layout = layout
        scalars = _blob(snapshot.values[layout.scalar_slots])
        row = (self._row, self._segment, snapshot.step, snapshot.time, scalars)
        self._db.execute("INSERT INTO scalars VALUES (?, ?, ?, ?, ?)", row)
        vector = snapshot.values[layout.layer_slots]
        if not np.isnan(vector).all():
            self._db.execute("INSERT INTO vectors VALUES (?, ?)", (self._row, _blob(vector)))

    def _commit(self) -> None:
        self._committed = self._clock()
        try:
            self._db.commit()
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY:
                raise


@dataclass(frozen=True)
class Recorded:
    """A run log as it stood when it was opened."""

    path: Path
    run: Run
    state: RunState
    """`running` also where the process died without a word."""
    alerts: list[Alert]
    """As they were raised live."""

    def feeds(self) -> Iterator[tuple[Snapshot, list[Event]]]:
        """What pipeline.feed got, in order."""
        with _reading(self.path) as db:
            layouts = {segment: _load_layout(text, self.path) for segment, text in db.execute("SELECT * FROM segments")}
            events: dict[int, list[Event]] = {}
            for row, record in db.execute("SELECT row, record FROM events ORDER BY rowid"):
                events.setdefault(row, []).append(_load(Event, record))
            for row, segment, step, unix, scalars, vector in db.execute(
                "SELECT row, segment, step, time, scalars.data, vectors.data FROM scalars LEFT JOIN vectors USING (row)"
                " ORDER BY row"
            ):
                layout = layouts[segment]
                yield Snapshot(step, unix, _values(layout, scalars, vector), layout), events.get(row, [])


def read(path: Path) -> Recorded:
    """Opens a run log, also one that is being written.

    FileNotFoundError: there is none. ValueError: not a run log, or one that this version cannot read.
    """
    if not path.exists():
        raise FileNotFoundError(f"there is no run log {path}; run logs end in {SUFFIX}")
    with _reading(path) as db:
        record, state = db.execute("SELECT record, state FROM run").fetchone()
        alerts = [_load(Alert, text) for (text,) in db.execute("SELECT record FROM alerts ORDER BY rowid")]
    return Recorded(path, _load(Run, record), cast(RunState, state), alerts)


@contextmanager
def _reading(path: Path) -> Iterator[sqlite3.Connection]:
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
        raise ValueError(f"{path} is not a readable stabmon run log: {error}") from error


def _create(path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
    except OSError as error:
        if path.exists():
            raise FileExistsError(
                f"run log {path} exists and is never overwritten; give the run another name (run=...) or move the file"
            ) from None
        raise OSError(
            error.errno,
            f"cannot write run logs in folder {path.parent} ({error.strerror}); "
            "pass a folder that is writable (folder=...), or log=False for none",
        ) from None


def _is_local(folder: Path) -> bool:
    """Whether the folder is known to lie on a local disk. Unknown counts as not."""
    try:
        mounts = [line.split()[1:3] for line in Path("/proc/self/mounts").read_text().splitlines()]
    except OSError:
        return False
    real = folder.resolve()
    over = [(mount, kind) for mount, kind in mounts if real.is_relative_to(mount)]
    return bool(over) and max(over, key=lambda found: len(found[0]))[1] in _LOCAL


def _plain(value: object) -> object:
    """What JSON does not know by itself: other mappings than dict, numpy's numbers."""
    return dict(value) if isinstance(value, Mapping) else float(cast(float, value))


def _dump(record: Run | Alert | Event) -> str:
    return json.dumps({f.name: getattr(record, f.name) for f in fields(record)}, default=_plain)


def _load(kind: type[_Record], text: str) -> _Record:
    """Fields that a later version added are ignored, so that it need not raise the format for them."""
    known = {f.name for f in fields(kind)}
    found = {name: value for name, value in json.loads(text).items() if name in known}
    if "remedies" in found:
        found["remedies"] = tuple(found["remedies"])
    return kind(**found)


def _dump_layout(layout: Layout) -> str:
    return json.dumps({"columns": layout.columns, "sites": [(s.name, s.layer, s.role) for s in layout.sites]})


def _load_layout(text: str, path: Path) -> Layout:
    found = json.loads(text)
    columns = tuple((statistic, site) for statistic, site in found["columns"])
    unknown = sorted({statistic for statistic, _ in columns} - set(STATISTICS))
    if unknown:
        raise ValueError(
            f"{path} has statistics that this stabmon does not know ({', '.join(unknown)}); use the one that wrote it"
        )
    return Layout(columns, tuple(Site(*site) for site in found["sites"]))


def _blob(values: Array) -> bytes:
    return values.astype("<f4", copy=False).tobytes()


def _values(layout: Layout, scalars: bytes, vector: bytes | None) -> Array:
    """float32[slot], NaN where the step had no vector row."""
    values = np.full(len(layout.columns), np.nan, dtype=np.float32)
    values[layout.scalar_slots] = np.frombuffer(scalars, dtype="<f4")
    if vector is not None:
        values[layout.layer_slots] = np.frombuffer(vector, dtype="<f4")
    return values
