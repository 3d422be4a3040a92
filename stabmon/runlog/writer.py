"""Writes a run log."""

from __future__ import annotations

import json
import os
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from stabmon.catalog import Array
from stabmon.records import PART_FAILED, Alert, Event, Layout, Run, RunState, Snapshot
from stabmon.runlog.encoding import LATER, SCHEMA, dump, dump_layout, load, to_blob

_COMMIT_SECONDS = _KEEP_UP_SECONDS = 1.0
_PATIENCE_SECONDS = 5.0
"""Before the first step and after the last one."""
_BUSY_SECONDS = 0.05
"""Training waits no longer than this for a reader; what could not be committed goes with the next commit."""
_WAL_PAGES = 64
"""Pages in the -wal file (4 KB each) after which they go into the run log itself."""
_LOCAL = {"ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "tmpfs", "overlay", "f2fs", "apfs", "hfs"}
"""File systems on which write-ahead logging is safe: its shared memory needs one machine."""


class RunLogWriter:
    """A sink. Commits every second, and at once on an alert or a failed part: those must outlive a crash.

    What is to be written waits in memory and goes into the file in one short transaction, so that others may write
    marks between; only whole rows go, since whoever follows the file reads each once. `resume_at`: the step that the
    run goes on from; then the file must be there, with the same run in it. Raises where the file cannot be made:
    FileExistsError (never overwrites), else an OSError naming the folder.
    """

    name = "run_log"

    def __init__(
        self, path: Path, run: Run, clock: Callable[[], float] = time.monotonic, resume_at: int | None = None
    ) -> None:
        self.path = path
        self._clock = clock
        self._pending: deque[tuple[str, tuple[Any, ...]]] = deque()
        self._added = self._whole = self._written = 0
        """Statements so far: all, those of whole rows, and those that are in the file."""
        self._lock = threading.RLock()
        """Of the connection; a signal's handler may close what it interrupted while it wrote."""
        self._over = threading.Event()
        self._error: Exception | None = None
        """What ended `keep_up`."""
        self._layout: Layout | None = None
        self._segment = 0
        self._row = 0
        if resume_at is None:
            _create(path)
        # The run may be closed from another thread than the training's (exit handlers); they never overlap.
        self._db = sqlite3.connect(path, timeout=_PATIENCE_SECONDS, isolation_level=None, check_same_thread=False)
        self._db.execute(f"PRAGMA journal_mode = {'WAL' if _is_local(path.parent) else 'TRUNCATE'}")
        self._db.execute("PRAGMA synchronous = NORMAL")
        self._db.execute(f"PRAGMA wal_autocheckpoint = {_WAL_PAGES}")
        self._db.executescript(f"BEGIN IMMEDIATE; {SCHEMA if resume_at is None else ''} {LATER}")
        if resume_at is None:
            self._db.execute("INSERT INTO run VALUES (?, 'running')", (dump(run),))
        else:
            self._branch(run, resume_at)
        self._db.execute("COMMIT")
        # Whoever copies the file without its -wal gets a run log, if one that ends a little earlier.
        self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        self._db.execute(f"PRAGMA busy_timeout = {1000 * _BUSY_SECONDS:.0f}")
        self._committed = clock()

    def judged_by(self, needs: Mapping[str, Sequence[str]]) -> None:
        """Whose scores come from here on, and what they look at."""
        self._write("INSERT INTO detectors VALUES (?, ?)", self._row + 1, json.dumps(dict(needs)))

    def scored(self, scores: Array) -> None:
        """Of the row that comes next: float32[detector]."""
        self._write("INSERT INTO scores VALUES (?, ?)", self._row + 1, to_blob(scores))

    def emit(self, snapshot: Snapshot, alerts: Sequence[Alert], events: Sequence[Event]) -> None:
        if self._error is not None:
            raise self._error
        self._row += 1
        self._write_values(snapshot)
        self._write_events(events)
        for alert in alerts:
            self._write("INSERT INTO alerts VALUES (?, ?)", self._row, dump(alert))
        self._whole = self._added
        if alerts or any(e.kind == PART_FAILED for e in events):
            self._commit(_BUSY_SECONDS)
        elif self._clock() - self._committed >= _COMMIT_SECONDS:
            self._commit()

    def note(self, events: Sequence[Event]) -> None:
        """Events after the last row, such as the evaluation that ends a run: they go with it."""
        self._write_events(events)
        self._whole = self._added

    def keep_up(self) -> None:
        """From here on rows do not wait for the next step to be in the file, but for a second or so."""
        threading.Thread(target=self._keep_up, name="stabmon-run-log", daemon=True).start()

    def keep(self, name: str, step: int, data: bytes) -> None:
        """Store what a resume needs besides the rows; of each name the newest two are kept."""
        self._write("INSERT OR REPLACE INTO blobs VALUES (?, ?, ?)", name, step, data)
        newest = "SELECT step FROM blobs WHERE name = ? ORDER BY step DESC LIMIT 2"
        self._write(f"DELETE FROM blobs WHERE name = ? AND step NOT IN ({newest})", name, name)

    def close(self, state: RunState) -> None:
        """Stores the final state and leaves one plain file, without side files."""
        self._over.set()
        with self._lock, closing(self._db) as db:
            db.execute(f"PRAGMA busy_timeout = {1000 * _PATIENCE_SECONDS:.0f}")
            self._write("UPDATE run SET state = ?", state)
            self._whole = self._added
            self._flush()
            with suppress(sqlite3.OperationalError):  # a reader holds it open: then it stays in WAL mode
                db.execute("PRAGMA journal_mode = DELETE")

    def _branch(self, run: Run, step: int) -> None:
        """Go on after what is there, from that step; what it runs on may be another machine."""
        (record,) = self._db.execute("SELECT record FROM run").fetchone()
        known = replace(load(Run, record), settings=run.settings, environment=run.environment)
        (self._row,) = self._db.execute("SELECT COALESCE(MAX(row), 0) FROM scalars").fetchone()
        (self._segment,) = self._db.execute("SELECT COALESCE(MAX(segment), 0) FROM segments").fetchone()
        self._db.execute("INSERT INTO branches VALUES (?, ?)", (self._row + 1, step))
        self._db.execute("DELETE FROM blobs WHERE step > ?", (step,))
        self._db.execute("UPDATE run SET record = ?, state = 'running'", (dump(known),))

    def _write_values(self, snapshot: Snapshot) -> None:
        layout = snapshot.layout
        if layout is not self._layout and layout != self._layout:
            self._segment += 1
            self._write("INSERT INTO segments VALUES (?, ?)", self._segment, dump_layout(layout))
        self._layout = layout
        scalars = to_blob(snapshot.values[layout.scalar_slots])
        row = (self._row, self._segment, snapshot.step, snapshot.time, scalars)
        self._write("INSERT INTO scalars VALUES (?, ?, ?, ?, ?)", *row)
        vector = snapshot.values[layout.layer_slots]
        if not np.isnan(vector).all():
            self._write("INSERT INTO vectors VALUES (?, ?)", self._row, to_blob(vector))

    def _write_events(self, events: Sequence[Event]) -> None:
        for event in events:
            self._write("INSERT INTO events VALUES (?, ?)", self._row, dump(event))

    def _write(self, statement: str, *values: object) -> None:
        """With the next commit."""
        self._pending.append((statement, values))
        self._added += 1

    def _keep_up(self) -> None:
        try:
            while not self._over.wait(_KEEP_UP_SECONDS):
                if self._whole > self._written:
                    self._commit(_PATIENCE_SECONDS)
        except Exception as error:  # told by the next row, as if it had happened there
            self._error = error

    def _commit(self, patience: float = 0.0) -> None:
        """Not where another thread is about it, and stays so for longer than `patience`."""
        if not self._lock.acquire(timeout=patience):
            return
        try:
            if self._over.is_set():
                return
            self._committed = self._clock()
            self._flush()
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY:
                raise
        finally:
            self._lock.release()
        if not self.path.exists():  # SQLite goes on writing into a file that has no name any more
            raise FileNotFoundError(f"run log {self.path} was deleted or moved while it was written")

    def _flush(self) -> None:
        """All whole rows that wait, or nothing. Others may come meanwhile."""
        batch = [self._pending.popleft() for _ in range(self._whole - self._written)]
        try:
            self._db.execute("BEGIN IMMEDIATE")
            for statement, values in batch:
                self._db.execute(statement, values)
            self._db.execute("COMMIT")
        except sqlite3.Error:
            self._pending.extendleft(reversed(batch))
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise
        self._written += len(batch)


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
