"""One self-contained HTML file of a run: the live page, with what a server would answer in it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

from stabmon import __version__
from stabmon.readers import Recording, opened
from stabmon.readers.text import printable
from stabmon.replays import Replay
from stabmon.report.html import html
from stabmon.report.stored import Store
from stabmon.runlog import RunLogWriter, path_of
from stabmon.server.history import History


def report(
    paths: Path | Sequence[Path],
    *,
    loss: str | None = None,
    step: str | None = None,
    run: str | Sequence[str | None] | None = None,
) -> str:
    """The page, as text; of several runs the first, with the others beside it. A run log is shown with the alerts that
    came live; what another tool wrote is judged first.

    Arguments and errors: as of `stabmon.replay`; `run` is one for all files, or one for each.
    """
    files = [paths] if isinstance(paths, Path) else paths
    runs = [run] * len(files) if run is None or isinstance(run, str) else run
    made = time.time()
    store, notes = Store(made), []
    day = datetime.fromtimestamp(made, UTC).strftime("%Y-%m-%d %H:%M UTC")
    with TemporaryDirectory(prefix="stabmon-") as folder:
        for number, (path, name) in enumerate(zip(files, runs, strict=True)):
            recording = opened(path, loss=loss, step=step, run=name)
            notes += _put(store, path, path_of(Path(folder), f"{number}"), recording)
    about = [f"Made by stabmon {__version__} on {day}. It asks for nothing on the internet.", *notes]
    return html(store.content(), store.runbooks(), about)


def _put(store: Store, path: Path, log: Path, recording: Recording) -> list[str]:
    """Puts a run into the store; what is to be said of its file."""
    notes, blind = [f"{printable(path.name)}: {recording.format}."], ""
    if recording.recorded:
        log = recording.recorded.path
    else:
        verdict = Replay(recording, str(path), sinks=[RunLogWriter(log, recording.run)]).run()
        notes += verdict.notes
        blind = ", ".join(verdict.could_not_run)
    history = History(log, foreign=recording.recorded is None)
    while history.refresh():
        pass
    store.add(store.free(recording.run.name), history, timed=recording.timed, blind=blind)
    return notes
