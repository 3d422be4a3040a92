"""Writes a run log."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from pathlib import Path

import numpy as np

from stabmon.records import PART_FAILED, Alert, Event, Layout, Run, RunState, Snapshot
from stabmon.runlog.encoding import SCHEMA, dump, dump_layout, to_blob

_COMMIT_SECONDS = 1.0
_BUSY_SECONDS = 0.05
"""Training waits no longer than this for a reader; what could not be committed goes with the next commit."""
_WAL_PAGES = 64
"""Pages in the -wal file (4 KB each) after which they go into the run log itself."""
_LOCAL = {"ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "tmpfs", "overlay", "f2fs", "apfs", "hfs"}
"""File systems on which write-ahead logging is safe: its shared memory needs one machine."""


class RunLogWriter:
    """A sink. Commits every second, and at once on an alert or a failed part: those must outlive a crash.

    `resume_at`: the step that the run goes on from; then the file must be there, with the same run in it. Raises
    where the file cannot be made: FileExistsError (never overwrites), else an OSError naming the folder.
    """

    name = "run_log"

    def __init__(
        self, path: Path, run: Run, clock: Callable[[], float] = time.monotonic, resume_at: int | None = None
    ) -> None:
        self.path = path
        self._clock = clock
        if resume_at is None:
            _create(path)
        # The run may be closed from another thread than the training's (exit handlers); they never overlap.
        self._db = sqlite3.connect(path, timeout=_BUSY_SECONDS, check_same_thread=False)
        self._db.execute(f"PRAGMA journal_mode = {'WAL' if _is_local(path.parent) else 'TRUNCATE'}")
        self._db.execute("PRAGMA synchronous = NORMAL")
        self._db.execute(f"PRAGMA wal_autocheckpoint = {_WAL_PAGES}")
        self._layout: Layout | None = None
        self._segment = 0
        self._row = 0
        if resume_at is None:
            self._db.executescript(f"BEGIN; {SCHEMA}")
            self._db.execute("INSERT INTO run VALUES (?, 'running')", (dump(run),))
        else:
            self._branch(resume_at)
        self._db.commit()
        # Whoever copies the file without its -wal gets a run log, if one that ends a little earlier.
        self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        self._committed = clock()

    def emit(self, snapshot: Snapshot, alerts: Sequence[Alert], events: Sequence[Event]) -> None:
        self._row += 1
        self._write_values(snapshot)
        self._db.executemany("INSERT INTO events VALUES (?, ?)", [(self._row, dump(e)) for e in events])
        self._db.executemany("INSERT INTO alerts VALUES (?, ?)", [(self._row, dump(a)) for a in alerts])
        urgent = bool(alerts) or any(e.kind == PART_FAILED for e in events)
        if urgent or self._clock() - self._committed >= _COMMIT_SECONDS:
            self._commit()

    def note(self, events: Sequence[Event]) -> None:
        """Events after the last row, such as the evaluation that ends a run: they go with it."""
        self._db.executemany("INSERT INTO events VALUES (?, ?)", [(self._row, dump(e)) for e in events])

    def keep(self, name: str, step: int, data: bytes) -> None:
        """Store what a resume needs besides the rows; of each name the newest two are kept."""
        self._db.execute("INSERT OR REPLACE INTO blobs VALUES (?, ?, ?)", (name, step, data))
        newest = "SELECT step FROM blobs WHERE name = ? ORDER BY step DESC LIMIT 2"
        self._db.execute(f"DELETE FROM blobs WHERE name = ? AND step NOT IN ({newest})", (name, name))

    def close(self, state: RunState) -> None:
        """Stores the final state and leaves one plain file, without side files."""
        with closing(self._db) as db:
            db.execute("PRAGMA busy_timeout = 5000")
            db.execute("UPDATE run SET state = ?", (state,))
            db.commit()
            with suppress(sqlite3.OperationalError):  # a reader holds it open: then it stays in WAL mode
                db.execute("PRAGMA journal_mode = DELETE")

    def _branch(self, step: int) -> None:
        """Go on after what is there, from that step."""
        (self._row,) = self._db.execute("SELECT COALESCE(MAX(row), 0) FROM scalars").fetchone()
        (self._segment,) = self._db.execute("SELECT COALESCE(MAX(segment), 0) FROM segments").fetchone()
        self._db.execute("INSERT INTO branches VALUES (?, ?)", (self._row + 1, step))
        self._db.execute("DELETE FROM blobs WHERE step > ?", (step,))
        self._db.execute("UPDATE run SET state = 'running'")

    def _write_values(self, snapshot: Snapshot) -> None:
        layout = snapshot.layout
        if layout is not self._layout and layout != self._layout:
            self._segment += 1
            self._db.execute("INSERT INTO segments VALUES (?, ?)", (self._segment, dump_layout(layout)))
        self._layout = layout
        scalars = to_blob(snapshot.values[layout.scalar_slots])
        row = (self._row, self._segment, snapshot.step, snapshot.time, scalars)
        self._db.execute("INSERT INTO scalars VALUES (?, ?, ?, ?, ?)", row)
        vector = snapshot.values[layout.layer_slots]
        if not np.isnan(vector).all():
            self._db.execute("INSERT INTO vectors VALUES (?, ?)", (self._row, to_blob(vector)))

    def _commit(self) -> None:
        self._committed = self._clock()
        try:
            self._db.commit()
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY:
                raise
        if not self.path.exists():  # SQLite goes on writing into a file that has no name any more
            raise FileNotFoundError(f"run log {self.path} was deleted or moved while it was written")


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
