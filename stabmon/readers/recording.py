"""A file that another tool wrote, as the run that it tells of."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from math import isfinite
from pathlib import Path
from threading import Event as Stop
from typing import BinaryIO

from stabmon.readers.feeding import UNIX, Feeding
from stabmon.readers.format import Format, Head
from stabmon.readers.formats import mlflow, run_log, tensorboard
from stabmon.readers.json_stream import CUT_OFF
from stabmon.readers.reading import Asked, Notes, ReadError, Reading
from stabmon.readers.recognised import recognised, without_loss
from stabmon.readers.source import POLL_SECONDS, Source
from stabmon.readers.text import printable
from stabmon.records import Event, Run, Snapshot
from stabmon.runlog import Recorded

_Feeds = Iterator[tuple[Snapshot, list[Event]]]
_Readings = Iterator[Reading | None]


@dataclass
class _Told:
    """Of our own run log."""

    seen: set[str] = field(default_factory=set)
    timed: bool = True


@dataclass
class Recording:
    """What a file holds. `feeds` may be gone through once."""

    format: str
    """As people call it, such as "Hugging Face trainer_state.json"."""
    run: Run
    notes: list[str]
    """What to know of it, in sentences; more may come while it is read."""
    others: tuple[str, ...] = ()
    """Other runs in the same file; name one as `run` to read it."""
    recorded: Recorded | None = None
    """Of our own run log: all that it holds."""
    _told: Feeding | _Told = field(default_factory=lambda: _Told(), repr=False)
    _feeds: _Feeds = field(default_factory=lambda: iter(()), repr=False)
    _stopped: Stop = field(default_factory=Stop, repr=False)

    @property
    def seen(self) -> set[str]:
        """Stored statistics that had a value so far."""
        return self._told.seen

    @property
    def timed(self) -> bool:
        """The file tells times. Else those of the snapshots count rows, a second each."""
        return self._told.timed

    def feeds(self) -> _Feeds:
        """What the pipeline is fed, in order, in bounded memory. Of a followed file: as it comes, until `stop`.

        ReadError: the file ceases to be readable.
        """
        with for_people(self.run.name):
            yield from self._feeds

    def stop(self) -> None:
        """Ends what is followed, within a second; from any thread."""
        self._stopped.set()


def opened(
    source: Path | BinaryIO,
    *,
    loss: str | None = None,
    step: str | None = None,
    run: str | None = None,
    follow: bool = False,
) -> Recording:
    """The run that a file, a folder that is a run, or a binary stream holds; the format is found by content.

    loss, step: names of columns, keys or tags, where the guess is wrong. run: which of several in one file. follow: go
    on with what is written later; waits until there is enough to tell what it is. ReadError: it cannot be read.
    """
    asked = Asked(loss, step, run)
    if not isinstance(source, Path):
        with for_people("standard input"):
            return _of_source(Source(source, name_of(source), None, follow, Notes()), asked)
    with for_people(str(source)):
        if source.is_dir():
            return _of_folder(source, asked, follow)
        return _of_file(source, asked, follow)


def name_of(source: Path | BinaryIO) -> str:
    """As people call it."""
    name = source if isinstance(source, Path) else getattr(source, "name", "")
    return "standard input" if name in ("", "<stdin>", 0) else str(name)


def began(path: Path | None, first: Reading | None) -> float:
    """Unix seconds: as the file tells, else when it was written last."""
    if first is not None and isfinite(first.time) and first.time > UNIX:
        return first.time
    return path.stat().st_mtime if path else time.time()


@contextmanager
def for_people(name: str) -> Iterator[None]:
    """Whatever a file may do to its reader becomes one line."""
    try:
        yield
    except ReadError:
        raise
    except FileNotFoundError:
        raise ReadError(f"{name} is not there; give a file, a folder, or - for standard input") from None
    except PermissionError:
        raise ReadError(f"{name} may not be read by you (permission denied)") from None
    except OSError as error:
        raise ReadError(f"{name} cannot be read: {error.strerror or error}") from None
    except (ValueError, RecursionError, MemoryError, sqlite3.Error) as error:
        raise ReadError(f"{name} cannot be read: {error}") from None


def _of_file(path: Path, asked: Asked, follow: bool) -> Recording:
    if not path.is_file():  # a pipe, such as <(ssh host cat log): what was read of it cannot be read again
        source = Source(path.open("rb"), str(path), None, follow, Notes())
        source.owned = True
        return _of_source(source, asked)
    with path.open("rb") as file:
        head = file.read(64)
    if head.startswith(run_log.MAGIC):
        return _of_run_log(path, asked, follow)
    if tensorboard.is_events(head):
        return _of_path(path, path.parent.name, tensorboard.NAME, tensorboard.readings, asked, follow)
    return _of_source(Source(path.open("rb"), str(path), path, follow, Notes()), asked)


def _of_run_log(path: Path, asked: Asked, follow: bool) -> Recording:
    found = run_log.recorded(path)
    run_log.check(path, asked, found.run.name)
    stopped, told = Stop(), _Told()
    feeds = _noting(run_log.followed(path, stopped) if follow else found.feeds(), told)
    return Recording(run_log.NAME, found.run, Notes(), (), found, told, feeds, stopped)


def _noting(feeds: _Feeds, told: _Told) -> _Feeds:
    layout = None
    for snapshot, events in feeds:
        if snapshot.layout is not layout:
            layout = snapshot.layout
            told.seen |= {statistic for statistic, _ in layout.columns}
        yield snapshot, events


def _of_folder(folder: Path, asked: Asked, follow: bool) -> Recording:
    if mlflow.is_run(folder):
        return _of_path(folder, mlflow.run_name(folder), mlflow.NAME, mlflow.readings, asked, follow)
    if tensorboard.files(folder):
        return _of_path(folder, folder.name, tensorboard.NAME, tensorboard.readings, asked, follow)
    raise ReadError(
        f"{folder} is a folder, and no run by itself; give a file of it (*.stabmon, trainer_state.json, a log)"
    )


def _of_path(
    path: Path,
    name: str,
    kind: str,
    readings: Callable[[Path, Asked, Notes], _Readings],
    asked: Asked,
    follow: bool,
) -> Recording:
    notes, stopped = Notes(), Stop()

    def again() -> _Readings:
        return readings(path, asked, notes)

    made = _reread(again, stopped) if follow else again()
    return _recording(kind, name or path.name, path, made, notes, stopped, follow)


def _of_source(source: Source, asked: Asked) -> Recording:
    try:
        form, head = recognised(source, asked)
    except BaseException:
        source.close()
        raise
    follow, path = source.follow, source.path
    if follow and form.document and path:
        source.close()
        stopped = Stop()

        def again() -> _Readings:
            return _document(form, path, asked, source.notes)

        readings = _reread(again, stopped)
    else:
        readings, stopped = form.readings(source, head, asked), source.stopped
    made = _recording(
        form.name, path.name if path else Path(source.name).name, path, readings, source.notes, stopped, follow
    )
    if source.run:
        made.run = Run(printable(source.run), made.run.started, framework=form.name)
    made.others = source.others
    return made


def _document(form: Format, path: Path, asked: Asked, notes: Notes) -> _Readings:
    """Of a followed one. ReadError: it is cut off, since it is being written."""
    source = Source(path.open("rb"), str(path), path, False, Notes())
    try:
        while source.look():
            pass
        yield from form.readings(source, Head(source.head, True), asked)
    finally:
        source.close()
    if cut := next((note for note in source.notes if note.startswith(CUT_OFF)), None):
        raise ReadError(cut)
    for note in source.notes:
        notes.say(note)


def _reread(again: Callable[[], _Readings], stopped: Stop) -> _Readings:
    """What is new each time that it is read from the start. One that is gone, or cannot be read to its end, is being
    written just now; one that is whole and shorter than before is another one.
    """
    done = 0
    while not stopped.is_set():
        count, whole = 0, True
        try:
            for reading in again():
                count += 1
                if count > done:
                    yield reading
        except (FileNotFoundError, ReadError):
            if not done and not count:
                raise
            whole = False
        if count >= done or whole:
            done = count if count >= done else 0
        yield None
        stopped.wait(POLL_SECONDS)


def _recording(
    kind: str, name: str, path: Path | None, readings: _Readings, notes: Notes, stopped: Stop, follow: bool
) -> Recording:
    """Looks at the first reading for the time at which it began; not where that may have to be waited for."""
    first = None
    if not follow:
        first = next(readings, None)
        if first is None:
            raise without_loss(str(path or name), kind, notes)
        readings = chain([first], readings)
    started = began(path, first)
    feeding = Feeding(started, notes)
    return Recording(
        kind, Run(printable(name), started, framework=kind), notes, (), None, feeding, feeding.feeds(readings), stopped
    )
