"""False alarms: their number among all points of runs that nobody labelled as failed, with exact intervals."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from stabmon.bench.intervals import Rate, binomial
from stabmon.bench.recorded.adjudication import Adjudication
from stabmon.bench.recorded.classes import ASKED, QUIET
from stabmon.bench.recorded.judging import Call, Judged
from stabmon.records import Severity


@dataclass(frozen=True, slots=True)
class FalseAlarms:
    """On the quiet runs of one list, each counted once."""

    critical: Rate
    """By adjudicated event."""
    raw: Rate
    """Criticals, whatever was found of them."""
    warning: Rate
    """Spikes and other warnings, true ones too."""
    false_warning: Rate
    """Those that were not found to be true."""
    runs: int
    runs_critical: int

    @property
    def runs_interval(self) -> tuple[float, float]:
        return binomial(self.runs_critical, self.runs)


def is_calibration(run: str) -> bool:
    """Half of the runs, by a hash of the id: nothing about a run decides which."""
    return hashlib.sha256(run.encode()).digest()[0] % 2 == 0


def halves(runs: Sequence[Judged]) -> dict[str, list[Judged]]:
    """Runs that thresholds may be chosen on, and the rest."""
    found: dict[str, list[Judged]] = {"calibration": [], "test": []}
    for run in runs:
        found["calibration" if is_calibration(run.recording.id) else "test"].append(run)
    return found


def quiet(runs: Sequence[Judged]) -> list[Judged]:
    """Runs that nobody labelled as failed, each once."""
    kept = (run for run in runs if not run.recording.other_label)
    return [run for run in kept if run.recording.label in ASKED and ASKED[run.recording.label].called == QUIET]


def false_alarms(runs: Sequence[Judged], adjudication: Adjudication) -> FalseAlarms:
    known = quiet(runs)
    points = sum(len(run.losses) for run in known)

    def untrue(run: Judged, call: Call) -> bool:
        return not adjudication.true(run.recording.id, call)

    def rate(severity: Severity, counts: Callable[[Judged, Call], bool] = lambda run, call: True) -> Rate:
        of = (1 for run in known for call in run.calls if call.severity == severity and counts(run, call))
        return Rate(sum(of), points)

    hit = [run for run in known if any(c.severity == "critical" and untrue(run, c) for c in run.calls)]
    return FalseAlarms(
        rate("critical", untrue),
        rate("critical"),
        rate("warning"),
        rate("warning", untrue),
        len(known),
        len(hit),
    )
