"""Alerts on disk until they are delivered: what a process could not tell before it died, the next one tells."""

from __future__ import annotations

import json
import logging
import os
import secrets
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from pydantic import TypeAdapter

from stabmon.records import Alert

_log = logging.getLogger("stabmon")
_alert = TypeAdapter(Alert)
_SUFFIX = ".json"
_MAX_AGE = 86400.0
"""Seconds after which nobody can act on an alert any more."""

_open: set[int] = set()


@dataclass(frozen=True, slots=True)
class Slip:
    """One alert on disk. Its file stays locked by this process, so that no other one delivers it, too.

    A lock and not a name marks it as taken: the system lets go of a lock when its process dies, however it dies.
    """

    path: Path
    descriptor: int

    def secure(self) -> None:
        """Makes it outlive the machine as well, if the disk can. Waits for it: not for the training thread."""
        with suppress(OSError):
            os.fsync(self.descriptor)

    def done(self) -> None:
        """Delivered."""
        with suppress(OSError):
            self.path.unlink(missing_ok=True)
        self.leave()

    def leave(self) -> None:
        """Left to whoever looks next."""
        if self.descriptor in _open:
            _open.remove(self.descriptor)
            os.close(self.descriptor)


def spool_in(folder: Path, name: str) -> Path:
    """Where, in a folder of runs, lie the alerts that are to go to the sink of that name."""
    return folder / f"undelivered-{name}"


class Spool:
    """A folder of undelivered alerts, one small file each, readable by its owner alone; there only when needed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def put(self, alert: Alert) -> Slip:
        """On disk, whole, and taken when this returns. OSError: it could not be written."""
        text = json.dumps(asdict(replace(alert, evidence=dict(alert.evidence))), default=float)
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / f"{time.time_ns():019d}-{secrets.token_hex(4)}{_SUFFIX}"
        draft = path.with_suffix(".tmp")
        descriptor = os.open(draft, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
        _open.add(descriptor)
        slip = Slip(path, descriptor)
        try:
            _lock(descriptor)
            os.write(descriptor, text.encode())
            draft.rename(path)
        except OSError:
            draft.unlink(missing_ok=True)
            slip.leave()
            raise
        return slip

    def leftovers(self) -> list[tuple[Alert, Slip]]:
        """What no living process holds, oldest first, now taken by this one. Those older than a day are thrown away."""
        return [found for path in self._files() if (found := self._take(path))]

    def tidy(self) -> None:
        """Removes the folder if it is empty."""
        with suppress(OSError):
            self.folder.rmdir()

    def _files(self) -> list[Path]:
        """In the order of their making. None where there is no such folder, or one that cannot be read."""
        with suppress(OSError):
            return sorted(path for path in self.folder.iterdir() if path.suffix == _SUFFIX)
        return []

    def _take(self, path: Path) -> tuple[Alert, Slip] | None:
        try:
            descriptor = os.open(path, os.O_RDWR)
        except OSError:  # another process has delivered it meanwhile, or another user owns it
            return None
        _open.add(descriptor)
        slip = Slip(path, descriptor)
        if not _lock(descriptor) or not path.exists():
            slip.leave()
            return None
        try:
            alert = _alert.validate_json(path.read_bytes())
        except ValueError:
            _log.warning("stabmon: %s is no alert and is removed", path)
            slip.done()
            return None
        if time.time() - alert.time > _MAX_AGE:
            _log.warning("stabmon: an undelivered alert is more than a day old and is dropped: %s", alert.headline)
            slip.done()
            return None
        return alert, slip


def _lock(descriptor: int) -> bool:
    """Whether it is ours now. Yes where there are no locks (Windows, some network folders): better twice than never."""
    try:
        import fcntl

        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except (ImportError, OSError):
        return True
    return True


def _close_in_child() -> None:
    """A forked data loader worker that outlives training would keep the alerts taken."""
    for descriptor in _open:
        os.close(descriptor)
    _open.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_in_child)
