"""Runs that were recorded, by stabmon or by another tool, judged again: the same detectors, without torch."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from stabmon.detectors import Detector
from stabmon.detectors.given import detectors_of
from stabmon.readers import every_run, opened
from stabmon.replays.judging import Replay
from stabmon.replays.verdict import Incident, Verdict

__all__ = ["Incident", "Replay", "Verdict", "replay", "verdicts"]


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


def verdicts(
    path: str | Path, *, loss: str | None = None, step: str | None = None, since: int = 0
) -> Iterator[Verdict]:
    """Of every run that a file holds, read once; each as its run ends. `-` is standard input. ValueError: as that of
    `replay`, after the verdicts on the runs that were begun.
    """
    begun: dict[int, Replay] = {}
    source = sys.stdin.buffer if str(path) == "-" else Path(path)
    for recording, fed in every_run(source, loss=loss, step=step):
        if (made := begun.get(id(recording))) is None:
            made = begun[id(recording)] = Replay(recording, str(path))
        if fed is not None:
            made.feed(*fed)
            continue
        made.end()
        yield made.verdict(since)
        del begun[id(recording)]
