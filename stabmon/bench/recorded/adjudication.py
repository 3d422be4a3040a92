"""What a person says of alarms on runs that are labelled healthy: an outcome hides what happened on the way."""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from stabmon.bench.recorded.judging import Call

VERDICTS = ("true", "false")
NEAR = 10
"""Points between a verdict and the alarm it is about, at most: a threshold that moves must not lose it."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Of one event of a run."""

    point: int
    true: bool
    why: str


class Adjudication:
    """By run. An alarm that nobody looked at is held to be false."""

    def __init__(self, verdicts: Mapping[str, list[Verdict]]) -> None:
        self._verdicts = verdicts

    def of(self, run: str, point: int) -> Verdict | None:
        near = [v for v in self._verdicts.get(run, []) if abs(v.point - point) <= NEAR]
        return min(near, key=lambda v: abs(v.point - point)) if near else None

    def true(self, run: str, call: Call) -> bool:
        return self.true_at(run, call.point)

    def true_at(self, run: str, point: int) -> bool:
        """Whether something was found to have happened there."""
        verdict = self.of(run, point)
        return verdict is not None and verdict.true


def read(path: Path | None) -> Adjudication:
    """A CSV of run, point, verdict (true or false), why.

    ValueError: another verdict, or a missing column.
    """
    if path is None:
        return Adjudication({})
    with path.open(newline="", encoding="utf-8") as file:
        return Adjudication(_by_run(path, csv.DictReader(file)))


def _by_run(path: Path, rows: Iterable[Mapping[str, str]]) -> Mapping[str, list[Verdict]]:
    found: dict[str, list[Verdict]] = defaultdict(list)
    for number, row in enumerate(rows, 1):
        missing = [name for name in ("run", "point", "verdict", "why") if not row.get(name)]
        if missing or row["verdict"] not in VERDICTS or not row["point"].isdigit():
            raise ValueError(
                f"{path}, row {number}: {dict(row)}; give run, point (a number), verdict (true or false) and why"
            )
        found[row["run"]].append(Verdict(int(row["point"]), row["verdict"] == "true", row["why"]))
    return found
