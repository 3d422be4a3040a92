"""Writes into the run log what became of each alert on its way to people, in a thread that lives while it writes."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path

from stabmon.records import Alert
from stabmon.runlog import path_of
from stabmon.runlog.told import Outcome, Told, add_told

_TRIES = 40
_REST_SECONDS = 0.05

_log = logging.getLogger("stabmon")


class Ledger:
    """`folder`: of run logs; None: nothing is kept."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._waiting: deque[tuple[Path, Told]] = deque()
        self._thread: threading.Thread | None = None

    def enter(self, alerts: Sequence[Alert], to: str, outcome: Outcome, why: str = "") -> None:
        """Returns at once; `why` holds no secret."""
        if self._folder is None:
            return
        now = time.time()
        entries = [(path_of(self._folder, alert.run), Told(alert.id, to, outcome, now, why)) for alert in alerts]
        with self._lock:
            self._waiting += entries
            if self._thread is None and entries:
                self._start()

    def wait(self, patience: float) -> None:
        """Until all is written, for at most so many seconds."""
        if thread := self._thread:
            thread.join(patience)

    def _start(self) -> None:
        self._thread = threading.Thread(target=self._work, name="stabmon-ledger", daemon=True)
        try:
            self._thread.start()
        except RuntimeError:  # the interpreter is shutting down
            self._thread = None

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._thread = None
                    return
                path, told = self._waiting.popleft()
            try:
                _write(path, told)
            except Exception as error:  # of a run whose log is gone, or that wrote none
                _log.debug("stabmon: what became of alert %s is not kept: %s", told.alert, error)


def _write(path: Path, told: Told) -> None:
    """Whoever else writes is waited for a while."""
    for _ in range(_TRIES):
        try:
            return add_told(path, told)
        except TimeoutError:
            time.sleep(_REST_SECONDS)
    raise TimeoutError(f"{path.name} is being written all the time")
