"""The figures for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from stabmon.bench.intervals import Rate
from stabmon.bench.recorded.adjudication import Adjudication
from stabmon.bench.recorded.alarms import false_alarms, halves, quiet
from stabmon.bench.recorded.classes import ASKED, confusion, figures
from stabmon.bench.recorded.judging import Judged
from stabmon.bench.recorded.targets import targets
from stabmon.bench.recorded.versus import versus

WIDTH = 132
"""Columns that the tables take."""
_KINDS = ("nonfinite", "diverged", "flat", "spike", "quiet")


def show(console: Console, runs: Sequence[Judged], adjudication: Adjudication, part: str) -> None:
    """Classes, confusion, false alarms, baselines, targets, and the events to judge."""
    points = sum(len(run.losses) for run in runs)
    console.print(f"{len(runs)} runs ({part}), {points} points. Leads are points from first alarm to marked onset.\n")
    _classes(console, runs, adjudication)
    for name, some in {"all": runs, **halves(runs)}.items():
        if some:
            _false_alarms(console, name, some, adjudication)
    console.print()
    _baselines(console, runs, adjudication)
    for target in targets(runs):
        missed = f"; not: {', '.join(target.missed)}" if target.missed else ""
        console.print(f"{target.hits} of {target.of} {target.what}{missed}", highlight=False)
    _events(console, runs, adjudication)


def _classes(console: Console, runs: Sequence[Judged], adjudication: Adjudication) -> None:
    columns = ("label", "runs", "precision", "recall", "lead median", "p10", *(f"as {kind}" for kind in _KINDS))
    table = Table(*columns, box=None, pad_edge=False)
    graded, called = figures(runs, adjudication), confusion(runs, adjudication)
    for label, row in graded.items():
        leads = (f"{lead:g}" if (lead := row.lead(share)) is not None else "" for share in (0.5, 0.1))
        table.add_row(
            label, str(row.runs), f"{row.precision:.2f}", f"{row.recall:.2f}", *leads, *_counts(called[label])
        )
    for label in sorted(set(called) - set(ASKED)):
        table.add_row(
            f"{label} (not graded)", str(sum(called[label].values())), "", "", "", "", *_counts(called[label])
        )
    console.print(table)


def _counts(called: Counter[str]) -> list[str]:
    return [str(called[kind] or "") for kind in _KINDS]


def _false_alarms(console: Console, name: str, runs: Sequence[Judged], adjudication: Adjudication) -> None:
    false = false_alarms(runs, adjudication)
    low, high = false.runs_interval
    console.print(
        f"\n{name}: {false.runs} runs that nobody labelled as failed, {false.critical.points} points\n"
        f"  criticals {false.raw.events}, false by adjudication {_told(false.critical)}, on {false.runs_critical} runs "
        f"({false.runs_critical / max(false.runs, 1):.2%}, {low:.2%} to {high:.2%})\n"
        f"  warnings {_told(false.warning)}, false by adjudication {_told(false.false_warning)}",
        highlight=False,
    )


def _told(rate: Rate) -> str:
    low, high = rate.interval
    return f"{rate.events} ({rate.per_1e5:.2f} per 1e5, {low:.2f} to {high:.2f})"


def _baselines(console: Console, runs: Sequence[Judged], adjudication: Adjudication) -> None:
    table = Table("rule", "recall", "precision", "lead median", "false per 1e5", box=None, pad_edge=False)
    for name, row in versus(runs, adjudication).items():
        lead = "" if row.lead_median is None else f"{row.lead_median:g}"
        table.add_row(name, f"{row.recall:.2f}", f"{row.precision:.2f}", lead, _told(row.false))
    console.print(table)
    console.print()


def _events(console: Console, runs: Sequence[Judged], adjudication: Adjudication) -> None:
    """Criticals on runs that nobody labelled as failed, for a person to judge."""
    for run in quiet(runs):
        for call in run.calls:
            if call.severity == "critical":
                verdict = adjudication.of(run.recording.id, call.point)
                told = "not judged" if verdict is None else f"{'true' if verdict.true else 'false'}: {verdict.why}"
                where = f"{run.recording.id} ({run.recording.name}), point {call.point}, step {call.step}"
                console.print(f"{where}: {call.detector} ({told})", highlight=False)
