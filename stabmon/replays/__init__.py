"""Runs that were recorded, by stabmon or by another tool, judged again: the same detectors, without torch."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from stabmon.detectors import Detector
from stabmon.detectors.given import detectors_of
from stabmon.readers import opened
from stabmon.replays.judging import Replay
from stabmon.replays.verdict import Incident, Verdict

__all__ = ["Incident", "Replay", "Verdict", "replay"]


def replay(
    path: str | Path,
    *,
    detectors: Iterable[Detector] | None = None,
    loss: str | None = None,
    step: str | None = None,
    run: str | None = None,
    since: int = 0,
) -> Verdict:
    """Judges a recorded run: a run log, or what another tool wrote (docs/formats.md).

    `detectors`: these instead of all that have what they need. `loss`, `step`: names of columns or keys, where those
    that were taken are not the right ones (`Verdict.notes` says which). `run`: which one of a file that holds several.
    `since`: leave out what was over by that step. ValueError: the file cannot be read; the message says what to do.
    """
    recording = opened(Path(path), loss=loss, step=step, run=run)
    made = Replay(recording, str(path), None if detectors is None else detectors_of(detectors))
    made.run()
    return made.verdict(since)
