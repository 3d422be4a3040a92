"""Recorded runs of a folder: labelled series by an index, and runs in one table with their outcomes."""

from __future__ import annotations

import csv
import gzip
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

Row = Mapping[str, str]
INDEX = "index.csv"
TABLE, OUTCOMES = "algoperf.csv.gz", "algoperf_outcomes.csv"


@dataclass(frozen=True, slots=True)
class Recording:
    """One run. `rows` are as in its file."""

    id: str
    name: str
    label: str
    onset: float | None
    """Step at which the failure begins, where somebody marked it."""
    series: str
    """Column that is judged."""
    rows: list[Row]
    other_label: str = ""
    """In the other list, if that has it too: it is graded under both labels, but its points are counted there."""


def recordings(folder: Path) -> Iterator[Recording]:
    """Of index.csv with its files (columns id, file, label; name, path, series, onset where there are such), then of
    algoperf.csv.gz (run_id, step, loss, grad_norm, lr) with algoperf_outcomes.csv (run_id, outcome, workload, path).

    ValueError: the folder has neither.
    """
    outcomes = {row["run_id"]: row for row in _rows(folder / OUTCOMES)}
    labels = {row["path"]: row["outcome"] for row in outcomes.values() if row.get("path")}
    index = list(_rows(folder / INDEX))
    if not index and not outcomes:
        raise ValueError(
            f"folder {folder} has neither {INDEX} (columns id, file, label) nor {TABLE} with {OUTCOMES}; give a folder "
            "of recorded runs"
        )
    for row in index:
        onset = row.get("onset", "")
        yield Recording(
            id=row["id"],
            name=row.get("name") or row["id"],
            label=row["label"],
            onset=float(onset) if onset else None,
            series=row.get("series") or "loss",
            rows=list(_rows(folder / row["file"], needed=True)),
            other_label=labels.get(row.get("path", ""), ""),
        )
    for run, rows in groupby(_rows(folder / TABLE, needed=bool(outcomes)), key=lambda row: row["run_id"]):
        if run in outcomes:
            row = outcomes[run]
            yield Recording(run, row.get("workload") or run, row["outcome"], None, "loss", list(rows))


def _rows(path: Path, needed: bool = False) -> Iterator[Row]:
    """Of a CSV file, by column; none where it is not there."""
    if not path.exists() and not needed:
        return
    with gzip.open(path, "rt", newline="") if path.suffix == ".gz" else path.open(newline="", encoding="utf-8") as file:
        yield from csv.DictReader(file)
