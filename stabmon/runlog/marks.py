"""What people said of alerts, kept in the run log by whoever serves it; the training does not write them."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import get_args

from stabmon.records import MarkKind
from stabmon.runlog.aside import append, records_in
from stabmon.runlog.reader import reading


@dataclass(frozen=True, slots=True)
class Mark:
    """What a person said of an alert, at a step."""

    alert: str
    """Its id."""
    kind: MarkKind
    step: int
    time: float
    until: int | None = None
    """Of a mute of its detector: the last step."""
    note: str = ""
    by: str = ""
    """Who said it, as they call themselves."""

    @property
    def detector(self) -> str:
        return self.alert.rpartition(":")[0]


_FIELDS = tuple(each.name for each in fields(Mark))


def add_mark(path: Path, mark: Mark) -> None:
    """Keep it. Errors: those of `stabmon.runlog.aside.append`."""
    append(path, "marks", asdict(mark))


def marks_in(db: sqlite3.Connection) -> list[Mark]:
    """All that this version knows, oldest first: others may have written more."""
    return [mark for text in records_in(db, "marks") if (mark := _known(text))]


def _known(text: str) -> Mark | None:
    """None: it says something else."""
    try:
        record = json.loads(text)
        mark = Mark(**{name: record[name] for name in _FIELDS if name in record})
    except (ValueError, TypeError):
        return None
    return mark if mark.kind in get_args(MarkKind) else None


def marks_of(path: Path, patience: float = 5.0) -> list[Mark]:
    """As `marks_in`; patience, errors: those of `stabmon.runlog.reading`."""
    with reading(path, patience) as db:
        return marks_in(db)


def standing(marks: Iterable[Mark]) -> dict[str, Mark]:
    """By alert, the last word."""
    latest = {mark.alert: mark for mark in marks}
    return {alert: mark for alert, mark in latest.items() if mark.kind != "none"}


def muted(marks: Sequence[Mark]) -> dict[str, int]:
    """Detectors that were muted, and the last step of that."""
    found: dict[str, int] = {}
    for mark in standing(marks).values():
        if mark.kind == "muted" and mark.until is not None:
            found[mark.detector] = max(mark.until, found.get(mark.detector, 0))
    return found


def muted_at(marks: Sequence[Mark], step: int) -> dict[str, int]:
    """Detectors that were muted at that step, as was known then, and the last step of that."""
    then = muted([mark for mark in marks if mark.step <= step])
    return {detector: until for detector, until in then.items() if step <= until}
