"""The metrics as a file for node_exporter's textfile collector, where nothing can scrape the training itself."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from stabmon.records import Alert, Event, Run, RunState, Snapshot

EVERY_SECONDS = 15.0

_log = logging.getLogger("stabmon")


class Textfile:
    """Written at once, every 15 s by a thread of its own, and at the end with the final state; it stays there.

    `path`: a file that ends in .prom, or a folder, in which it is named after the run. ValueError: neither, or it
    cannot be written. Comes after the sink whose `render` it is given, so that it has the final state.
    """

    name = "textfile"

    def __init__(self, path: Path, run: Run, render: Callable[[], bytes], every: float = EVERY_SECONDS) -> None:
        if path.is_dir():
            path = path / f"stabmon-{run.name}-{run.rank}.prom"
        elif path.suffix != ".prom":
            raise ValueError(
                f"textfile={path}: node_exporter reads files that end in .prom alone; give such a file, or its folder"
            )
        self.path = path
        self._render = render
        self._every = every
        self._over = threading.Event()
        try:
            self._write()
        except OSError as error:
            raise ValueError(
                f"textfile={path}: cannot be written ({error.strerror}); give a file in a folder that is there"
            ) from None
        self._thread = threading.Thread(target=self._work, name="stabmon-textfile", daemon=True)
        self._thread.start()

    def emit(self, snapshot: Snapshot, alerts: Sequence[Alert], events: Sequence[Event]) -> None:
        """Nothing: the thread looks by itself."""

    def close(self, state: RunState) -> None:
        self._over.set()
        self._thread.join(5)
        self._write()

    def _work(self) -> None:
        told = False
        while not self._over.wait(self._every):
            try:
                self._write()
            except Exception as error:  # the next one may be written again
                if not told:
                    _log.warning(
                        "stabmon: %s cannot be written (%s); it is tried again", self.path, type(error).__name__
                    )
                told = True

    def _write(self) -> None:
        draft = self.path.with_name(f".{self.path.name}.{os.getpid()}")  # not .prom: nobody reads half a file
        try:
            draft.write_bytes(self._render())
            os.replace(draft, self.path)
        except OSError:
            with suppress(OSError):
                draft.unlink(missing_ok=True)
            raise
