"""One self-contained HTML file of a run: the live page, with what a server would answer in it."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

from stabmon import __version__
from stabmon.readers import Recording, opened
from stabmon.replays import Replay
from stabmon.report.html import html
from stabmon.report.stored import stored
from stabmon.runlog import RunLogWriter, path_of
from stabmon.server.history import History


def report(path: Path, *, loss: str | None = None, step: str | None = None, run: str | None = None) -> str:
    """The page, as text. A run log is shown with the alerts that came live; what another tool wrote is judged first.

    Arguments and errors: as of `stabmon.replay`.
    """
    recording = opened(path, loss=loss, step=step, run=run)
    if recording.recorded:
        return _page(recording.recorded.path, recording, [])
    with TemporaryDirectory(prefix="stabmon-") as folder:
        log = path_of(Path(folder), "report")
        verdict = Replay(recording, str(path), sinks=[RunLogWriter(log, recording.run)]).run()
        return _page(log, recording, [*verdict.notes, verdict.unseen])


def _page(log: Path, recording: Recording, notes: list[str]) -> str:
    history, made = History(log), time.time()
    while history.refresh():
        pass
    name = recording.run.name
    day = datetime.fromtimestamp(made, UTC).strftime("%Y-%m-%d %H:%M UTC")
    told = f"Made by stabmon {__version__} on {day} from a {recording.format}. It asks for nothing on the internet."
    return html({"made": made, "runs": {name: stored(name, history, made)}}, [told, *filter(None, notes)])
