"""What other tools logged, as a run log that lives as long as somebody looks at it."""

from __future__ import annotations

import shutil
import weakref
from pathlib import Path
from tempfile import mkdtemp

from stabmon.readers import opened
from stabmon.replays import Replay
from stabmon.runlog import RunLogWriter, path_of


def judged(path: Path, owner: object) -> tuple[Path, tuple[str, ...]]:
    """A run log of what is in the file, with the alerts of the detectors that can judge it, and sentences on what was
    read; the run log goes with its owner. Of a run log of ours: itself. ValueError: nothing that can be read.
    """
    recording = opened(path)
    if recording.recorded is not None:
        return recording.recorded.path, ()
    folder = Path(mkdtemp(prefix="stabmon-"))
    weakref.finalize(owner, shutil.rmtree, folder, ignore_errors=True)
    log = path_of(folder, recording.run.name)
    verdict = Replay(recording, str(path), sinks=[RunLogWriter(log, recording.run)]).run()
    notes = (f"{path.name}: {recording.format}.", *verdict.notes, verdict.unseen)
    return log, tuple(note for note in notes if note)
