"""A run that was opened: its numbers as frames, its alerts, its verdict; a picture of itself in a notebook."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar, overload

from stabmon.catalog import STATISTICS
from stabmon.notebook import frames
from stabmon.notebook.foreign import judged
from stabmon.notebook.html import html
from stabmon.records import Alert, Event, Run, RunState, Site
from stabmon.runlog import SUFFIX
from stabmon.runlog.finding import located
from stabmon.server import answers
from stabmon.server.history import LAYERS, History
from stabmon.server.models import Words
from stabmon.server.standing import MODEL
from stabmon.server.titles import sentence

if TYPE_CHECKING:
    import pandas as pd

_Row = TypeVar("_Row", Alert, Event)


def open(run: str | Path) -> OpenedRun:
    """A run log; of a folder the newest; or the run of that name in ./stabmon-runs. Also of a run that still trains.

    What another tool logged (Hugging Face, W&B, TensorBoard, text, CSV, …) is judged first, as it is now.
    FileNotFoundError: there is none. ValueError: nothing in it can be read.
    """
    path = Path(run).expanduser()
    try:
        path = located(path)
    except FileNotFoundError:
        if not path.is_dir():  # else one that another tool wrote
            raise
    return OpenedRun(path)


class Rows(Sequence[_Row], Generic[_Row]):
    """Alerts or events, oldest first."""

    def __init__(self, kind: type[_Row], rows: Iterable[_Row]) -> None:
        self._columns = [field.name for field in fields(kind)]
        self._rows: tuple[_Row, ...] = tuple(rows)

    @overload
    def __getitem__(self, place: int) -> _Row: ...

    @overload
    def __getitem__(self, place: slice) -> tuple[_Row, ...]: ...

    def __getitem__(self, place: int | slice) -> _Row | tuple[_Row, ...]:
        return self._rows[place]

    def __len__(self) -> int:
        return len(self._rows)

    def __repr__(self) -> str:
        return repr(self._rows)

    def frame(self) -> pd.DataFrame:
        """A row each, a column for each of their fields. ImportError: pandas is missing."""
        return frames.of_records(self._columns, [asdict(row) for row in self])


class OpenedRun:
    """Reads on by itself: everything is as of now, also while the run trains. `path`: the run log."""

    def __init__(self, path: Path) -> None:
        self.path, self.notes = (path, ()) if path.suffix == SUFFIX else judged(path, self)
        """`notes`: what was read of another tool's file, a sentence each."""
        self._history = History(self.path, foreign=self.path != path)
        self.refresh()

    def refresh(self) -> OpenedRun:
        """Reads what was written since; everything else does so, too. Errors as of `stabmon.open`."""
        while self._history.refresh():
            pass
        return self

    @property
    def run(self) -> Run:
        """Name, model, framework, when it began."""
        known = self.refresh()._history.run
        assert known is not None
        return known

    @property
    def state(self) -> RunState | None:
        """`running` also where the process died without a word; None of another tool's file, which does not say."""
        return self.refresh()._history.state

    @property
    def step(self) -> int:
        """The newest; 0 before the first."""
        return self.refresh()._history.step

    @property
    def verdict(self) -> Words:
        """How it is doing, in the words of the page: `level`, `title`, `text`."""
        return answers.words(self.refresh()._history)

    @property
    def alerts(self) -> Rows[Alert]:
        """As they were raised and cleared, oldest first; `.frame()`."""
        return Rows(Alert, self.refresh()._history.alerts)

    @property
    def events(self) -> Rows[Event]:
        """What is known to have happened, the last thousand; `.frame()`."""
        return Rows(Event, self.refresh()._history.events)

    @property
    def layers(self) -> tuple[Site, ...]:
        """All places that anything per layer was read at, in forward order."""
        layout = self.refresh()._history.layout
        return () if layout is None else tuple(layout.site(name) for name in _in_order(layout.columns))

    @property
    def statistics(self) -> tuple[str, ...]:
        """What `frame` takes for this run."""
        history = self.refresh()._history
        return tuple(name for name in (*MODEL, *LAYERS) if history.sites(name))

    def frame(self, statistic: str | None = None) -> pd.DataFrame:
        """A statistic wherever it was read: a row for each step, a column for each layer; without a name: time and all
        that is read of the whole model, a column for each.

        NaN is not read, Inf read and not finite; nothing is thinned. ValueError: this run has no such statistic.
        ImportError: pandas is missing.
        """
        if statistic is None:
            return frames.of_model(self.path, [name for name in self.statistics if name in MODEL])
        if statistic not in STATISTICS or not self.refresh()._history.sites(statistic):
            what = "was not read in this run" if statistic in STATISTICS else "is no statistic"
            raise ValueError(f"{statistic!r} {what}; there are: {', '.join(self.statistics) or 'none yet'}")
        return frames.of_statistic(self.path, statistic)

    def __repr__(self) -> str:
        try:
            words = self.verdict
        except (OSError, ValueError) as error:
            return f"<stabmon run {self.path.stem!r}: {error}>"
        return f"<stabmon run {self.run.name!r}: {sentence(words.title)} {words.text}>"

    def _repr_html_(self) -> str:
        notes = list(self.notes)
        try:
            self.refresh()
        except (OSError, ValueError) as error:
            notes.append(f"As last seen; now: {error}")
        return html(self._history, " ".join(notes))


def _in_order(columns: tuple[tuple[str, str], ...]) -> list[str]:
    return list(dict.fromkeys(site for _, site in columns if site))
