"""How a run log is laid out and what its records look like as text and bytes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import fields
from itertools import chain
from math import isfinite
from pathlib import Path
from stat import S_ISREG
from typing import Any, TypeVar, cast

import numpy as np

from stabmon.catalog import STATISTICS, Array
from stabmon.records import Alert, Event, Layout, Run, Site

SUFFIX = ".stabmon"
FORMAT = 1
"""Raised whenever an older reader would misread the file; kept in SQLite's `user_version`."""
APPLICATION_ID = 0x53746D6E
"""Marks the file as ours ("Stmn"); kept in SQLite's `application_id`."""

SCHEMA = f"""
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = {FORMAT};
CREATE TABLE run (record TEXT NOT NULL, state TEXT NOT NULL);
CREATE TABLE segments (segment INTEGER PRIMARY KEY, layout TEXT NOT NULL);
CREATE TABLE scalars (row INTEGER PRIMARY KEY, segment INTEGER NOT NULL, step INTEGER NOT NULL, time REAL NOT NULL,
                      data BLOB NOT NULL);
CREATE TABLE vectors (row INTEGER PRIMARY KEY, data BLOB NOT NULL);
CREATE TABLE events (row INTEGER NOT NULL, record TEXT NOT NULL);
CREATE TABLE alerts (row INTEGER NOT NULL, record TEXT NOT NULL);
CREATE TABLE branches (first_row INTEGER NOT NULL, step INTEGER NOT NULL);
CREATE TABLE blobs (name TEXT NOT NULL, step INTEGER NOT NULL, data BLOB NOT NULL, PRIMARY KEY (name, step));
"""
# Earlier versions made none of these: whoever writes makes them, whoever reads looks.
LATER = """
CREATE TABLE IF NOT EXISTS detectors (first_row INTEGER NOT NULL, needs TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS scores (row INTEGER PRIMARY KEY, data BLOB NOT NULL);
"""

Record = TypeVar("Record", Run, Alert, Event)


def path_of(folder: Path, run: str) -> Path:
    """Where the run log of that run lies."""
    return folder / f"{run}{SUFFIX}"


def newest(folder: Path) -> Path | None:
    """The run log that was written to last in that folder."""
    return max(_written(folder.glob(f"*{SUFFIX}")), default=(0.0, None))[1]


def in_folder(folder: Path) -> dict[str, Path]:
    """The run logs in a folder, in its subfolders and in their `stabmon` folders, newest first, by name within it."""
    found = chain.from_iterable(folder.glob(f"{sub}*{SUFFIX}") for sub in ("", "*/", "*/stabmon/"))
    newest_first = sorted(_written(found), key=lambda each: -each[0])
    return {as_text(path.relative_to(folder).with_suffix("").as_posix()): path for _, path in newest_first}


def _written(paths: Iterable[Path]) -> Iterator[tuple[float, Path]]:
    """When each was written to last; not of folders, links to nothing, and what is deleted at this moment."""
    for path in paths:
        with suppress(OSError):
            there = path.stat()
            if S_ISREG(there.st_mode):
                yield there.st_mtime, path


def as_text(name: str) -> str:
    """A file's name that is no UTF-8, which systems allow and JSON does not, with its odd bytes as `\\xff`."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def alert_summary(alert: Alert) -> dict[str, Any]:
    """What `--json` prints of an alert: JSON types only; evidence that is not finite becomes null."""
    return {
        "detector": alert.detector,
        "severity": alert.severity,
        "state": alert.state,
        "step": alert.step,
        "layer": alert.layer,
        "message": alert.message,
        "evidence": {name: float(v) if isfinite(v) else None for name, v in alert.evidence.items()},
    }


def _plain(value: object) -> object:
    """What JSON does not know by itself: other mappings than dict, numpy's numbers."""
    return dict(value) if isinstance(value, Mapping) else float(cast(float, value))


def dump(record: Run | Alert | Event) -> str:
    return json.dumps({f.name: getattr(record, f.name) for f in fields(record)}, default=_plain)


def load(kind: type[Record], text: str) -> Record:
    """Fields that a later version added are ignored, so that it need not raise the format for them."""
    known = {f.name for f in fields(kind)}
    found = {name: value for name, value in json.loads(text).items() if name in known}
    lists = {name: tuple(found[name]) for name in ("remedies", "ruled_out") if name in found}
    return kind(**found | lists)


def dump_layout(layout: Layout) -> str:
    sites = [(s.name, s.layer, s.role) for s in layout.sites]
    placements = {s.name: s.placement for s in layout.sites if s.placement}
    return json.dumps({"columns": layout.columns, "sites": sites, "placements": placements})


def load_layout(text: str, path: Path) -> Layout:
    found = json.loads(text)
    columns = tuple((statistic, site) for statistic, site in found["columns"])
    unknown = sorted({statistic for statistic, _ in columns} - set(STATISTICS))
    if unknown:
        raise ValueError(
            f"{path} has statistics that this stabmon does not know ({', '.join(unknown)}); use the one that wrote it"
        )
    placements = found.get("placements", {})  # earlier versions wrote none
    sites = (Site(name, layer, role, placements.get(name, "")) for name, layer, role in found["sites"])
    return Layout(columns, tuple(sites))


def to_blob(values: Array) -> bytes:
    return values.astype("<f4", copy=False).tobytes()


def to_values(layout: Layout, scalars: bytes, vector: bytes | None) -> Array:
    """float32[slot], NaN where the step had no vector row."""
    values = np.full(len(layout.columns), np.nan, dtype=np.float32)
    values[layout.scalar_slots] = np.frombuffer(scalars, dtype="<f4")
    if vector is not None:
        values[layout.layer_slots] = np.frombuffer(vector, dtype="<f4")
    return values
