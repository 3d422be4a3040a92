"""From a folder to figures: as JSON, as tables, and as a list of events for a person to judge."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from stabmon.bench.intervals import Rate
from stabmon.bench.recorded import tables
from stabmon.bench.recorded.adjudication import Adjudication, read
from stabmon.bench.recorded.alarms import FalseAlarms, false_alarms, halves, is_calibration, quiet
from stabmon.bench.recorded.classes import confusion, figures
from stabmon.bench.recorded.folder import Recording, recordings
from stabmon.bench.recorded.judging import Judged, judge
from stabmon.bench.recorded.targets import targets
from stabmon.bench.recorded.versus import versus

PARTS = ("all", "calibration", "test")
ADJUDICATION = "adjudication.csv"


def recorded(folder: Path, part: str, adjudication: Path | None, events: Path | None, as_json: bool) -> None:
    """Judge and show; with `as_json` the last line of stdout is the result, and the rest goes to stderr.

    ValueError: an unknown part, a folder without runs, a cell that is no number, a verdict that is none.
    """
    if part not in PARTS:
        raise ValueError(f"part is {part!r}; give one of {', '.join(PARTS)}")
    known = read(adjudication or _beside(folder))
    console = Console(stderr=as_json, soft_wrap=True)
    console.width = max(console.width, tables.WIDTH)
    with console.status("") as status:
        runs = list(_judged(recordings(folder), part, lambda done: status.update(f"judged {done} runs")))
    if events is not None:
        _write_events(events, runs, known)
    tables.show(console, runs, known, part)
    if as_json:
        sys.stdout.write(json.dumps(result(runs, known), allow_nan=False) + "\n")


def result(runs: Sequence[Judged], adjudication: Adjudication) -> dict[str, Any]:
    """The JSON. Leads are points; per_1e5 are events in 100,000 logged values; intervals exact, of 95 %."""
    false = false_alarms(runs, adjudication)
    return {
        "classes": {
            label: {
                "runs": row.runs,
                "precision": _finite(row.precision),
                "recall": row.recall,
                "lead_median": row.lead(0.5),
                "lead_p10": row.lead(0.1),
            }
            for label, row in figures(runs, adjudication).items()
        },
        "false_alarms": _false(false),
        "parts": {part: _false(false_alarms(some, adjudication)) for part, some in halves(runs).items()},
        "baselines": {
            name: {
                "recall": _finite(row.recall),
                "precision": _finite(row.precision),
                "lead_median": row.lead_median,
                **_rate(row.false),
            }
            for name, row in versus(runs, adjudication).items()
        },
        "targets": [
            {"what": row.what, "hits": row.hits, "of": row.of, "interval": row.interval, "missed": row.missed}
            for row in targets(runs)
        ],
        "confusion": confusion(runs, adjudication),
    }


def _false(false: FalseAlarms) -> dict[str, Any]:
    return {
        "checks": false.critical.points,
        "critical": false.critical.events,
        "warning": false.warning.events,
        "per_1e5": _finite(false.critical.per_1e5),
        "interval": [_finite(bound) for bound in false.critical.interval],
        "critical_before_adjudication": false.raw.events,
        "warning_per_1e5": _finite(false.warning.per_1e5),
        "warning_interval": [_finite(bound) for bound in false.warning.interval],
        "warning_after_adjudication": false.false_warning.events,
        "runs": false.runs,
        "runs_critical": false.runs_critical,
        "runs_interval": false.runs_interval,
    }


def _rate(rate: Rate) -> dict[str, Any]:
    return {"per_1e5": _finite(rate.per_1e5), "interval": [_finite(bound) for bound in rate.interval]}


def _finite(value: float) -> float | None:
    """JSON has neither NaN nor Inf."""
    return value if abs(value) < float("inf") else None


def _judged(found: Iterable[Recording], part: str, told: Callable[[int], None]) -> Iterable[Judged]:
    done = 0
    for recording in found:
        if part == "all" or is_calibration(recording.id) == (part == "calibration"):
            yield judge(recording)
            done += 1
            told(done)


def _beside(folder: Path) -> Path | None:
    path = folder / ADJUDICATION
    return path if path.exists() else None


def _write_events(path: Path, runs: Sequence[Judged], adjudication: Adjudication) -> None:
    """Every warning and critical on a run that nobody labelled as failed, with the losses around it: fill in `verdict`
    and `why`, and hand the file back.
    """
    with path.open("w", newline="", encoding="utf-8") as file:
        out = csv.writer(file)
        out.writerow(["run", "point", "verdict", "why", "detector", "severity", "step", "name", "losses"])
        for run in quiet(runs):
            for call in run.calls:
                if call.severity == "info":
                    continue
                verdict = adjudication.of(run.recording.id, call.point)
                told = ("true" if verdict.true else "false", verdict.why) if verdict else ("", "")
                around = run.losses[max(call.point - 16, 0) : call.point + 17]
                seen = " ".join(f"{value:.3g}" for value in around)
                where = (call.detector, call.severity, call.step, run.recording.name, seen)
                out.writerow([run.recording.id, call.point, *told, *where])
