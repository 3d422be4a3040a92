"""Who was told of an alert and when, kept in the run log by the threads that tell."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Literal, get_args

from stabmon.runlog.aside import append, records_in

Outcome = Literal["sent", "held", "waiting", "failed", "dropped"]
"""held: kept back for a digest; waiting: tried in vain, and tried again; dropped: too many were waiting."""


@dataclass(frozen=True, slots=True)
class Told:
    """What became of an alert on its way to somebody."""

    alert: str
    """Its id."""
    to: str
    """The sink's name, such as `slack`."""
    outcome: Outcome
    time: float
    why: str = ""
    """Of what did not arrive; no secret."""


_FIELDS = tuple(each.name for each in fields(Told))


def add_told(path: Path, told: Told) -> None:
    """Keep it. Errors: those of `stabmon.runlog.aside.append`."""
    append(path, "told", asdict(told))


def told_in(db: sqlite3.Connection) -> list[Told]:
    """All that this version knows, oldest first."""
    return [told for text in records_in(db, "told") if (told := _known(text))]


def _known(text: str) -> Told | None:
    try:
        record = json.loads(text)
        told = Told(**{name: record[name] for name in _FIELDS if name in record})
    except (ValueError, TypeError):
        return None
    return told if told.outcome in get_args(Outcome) else None
