"""Every run that a file holds, in one pass."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from stabmon.readers.feeding import Fed, Feeding
from stabmon.readers.formats import run_log, tensorboard
from stabmon.readers.reading import Asked, Notes, ReadError, Reading
from stabmon.readers.recognised import recognised, without_loss
from stabmon.readers.recording import Recording, began, for_people, name_of, opened
from stabmon.readers.rows import OPEN
from stabmon.readers.source import Source
from stabmon.readers.text import printable
from stabmon.records import Run

MOST_RUNS = 20_000
_NAMED = 12
"""A message names so many runs."""
_Told = tuple[Recording, Fed | None]


def every_run(
    source: Path | BinaryIO, *, loss: str | None = None, step: str | None = None, runs: Collection[str] = ()
) -> Iterator[_Told]:
    """What each run of a file is fed, in the file's order; None when it is over. Runs may lie one after the other or
    mixed, `OPEN` of them at a time. `runs`: those alone; a file that tells no runs apart is one run all the same.

    ReadError: as that of `opened`, or a run of `runs` is not there; runs that were begun are ended before.
    """
    if isinstance(source, Path) and not _is_text(source):
        recording = opened(source, loss=loss, step=step)
        for fed in recording.feeds():
            yield recording, fed
        yield recording, None
        return
    name = name_of(source)
    with for_people(name):
        stream = source.open("rb") if isinstance(source, Path) else source
        path = source if isinstance(source, Path) and source.is_file() else None
        made = Source(stream, name, path, False, Notes())
        made.owned = isinstance(source, Path)
        yield from _Runs(made, runs).told(Asked(loss, step, None, True))


def _is_text(path: Path) -> bool:
    """No folder, and no file that has a reader of its own."""
    if not path.is_file():
        return not path.is_dir()
    with for_people(str(path)), path.open("rb") as file:
        head = file.read(64)
    return not (head.startswith(run_log.MAGIC) or tensorboard.is_events(head))


@dataclass
class _Open:
    recording: Recording
    feeding: Feeding
    notes: Notes
    last: int = -1
    """Number of its last reading in the file."""


class _Runs:
    """Runs that were begun and are not over."""

    def __init__(self, source: Source, only: Collection[str]) -> None:
        self._source, self._only = source, only
        self._open: dict[str, _Open] = {}
        self._over: set[str] = set()
        self._left: dict[str, None] = {}
        """Some of those that were not asked for, in order."""

    def told(self, asked: Asked) -> Iterator[_Told]:
        source = self._source
        try:
            form, head = recognised(source, asked)
            readings = form.readings(source, head, asked)
            yield from self._read(readings, form.name, alone=not source.others and head.whole)
        except (ReadError, ValueError, OSError):
            yield from self._end(list(self._open))
            raise
        finally:
            source.close()

    def _read(self, readings: Iterator[Reading | None], kind: str, alone: bool) -> Iterator[_Told]:
        for number, reading in enumerate(readings):
            if reading is None or self._is_left(reading.run):
                continue
            run = self._open.get(reading.run)
            if run is None:
                if len(self._open) == OPEN:
                    yield from self._end([min(self._open, key=lambda name: self._open[name].last)])
                run = self._begin(reading, kind, "" if alone else reading.run)
            run.last = number
            if (fed := run.feeding.push(reading)) is not None:
                yield run.recording, fed
        self._check_found()
        if not self._open:
            raise without_loss(self._source.name, kind, self._source.notes)
        yield from self._end(list(self._open))

    def _is_left(self, run: str) -> bool:
        if not (self._only and run) or run in self._only:
            return False
        if len(self._left) < _NAMED:
            self._left[run] = None
        return True

    def _check_found(self) -> None:
        there = [*self._over, *self._open, *self._left]
        if there and "" not in there and (lacks := [run for run in self._only if run not in there]):
            raise ReadError(f"{self._source.name} has no run {lacks[0]!r}; it has {', '.join(there[:_NAMED])}")

    def _begin(self, first: Reading, kind: str, name: str) -> _Open:
        source = self._source
        if first.run in self._over:
            raise ReadError(
                f"{source.name}: rows of run {first.run!r} come again after those of {OPEN} others; sort it by run, "
                "then by step. What was said of its runs is of their first rows alone"
            )
        if len(self._over) >= MOST_RUNS:
            raise ReadError(f"{source.name} has more than {MOST_RUNS} runs; cut it into several files")
        notes = Notes(source.notes)
        started = began(source.path, first)
        feeding = Feeding(started, notes)
        named = printable(name or source.run or Path(source.name).name)
        recording = Recording(kind, Run(named, started, framework=kind), notes, (), None, feeding)
        self._open[first.run] = made = _Open(recording, feeding, notes)
        return made

    def _end(self, names: list[str]) -> Iterator[_Told]:
        for name in names:
            run = self._open.pop(name)
            self._over.add(name)
            yield from ((run.recording, fed) for fed in run.feeding.end())
            for note in self._source.notes:
                run.notes.say(note)
            yield run.recording, None
