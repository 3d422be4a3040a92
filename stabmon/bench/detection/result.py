"""The figures as JSON. Leads are steps; per_1e5 is incidents in 100,000 checks; intervals are exact, of 95 %."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stabmon.bench.detection.figures import (
    FalseAlarms,
    Figures,
    Graded,
    Share,
    confusion,
    false_alarms,
    figures,
    named,
)
from stabmon.bench.detection.operating import Beside, beside
from stabmon.bench.detection.targets import targets
from stabmon.bench.detection.versus import Versus, versus
from stabmon.bench.intervals import Rate


def result(runs: Sequence[Graded]) -> dict[str, Any]:
    """`classes`, `false_alarms` and `baselines` have the same shape as those of `stabmon bench recorded`."""
    right, true = named(runs)
    return {
        "classes": {name: _figures(row) for name, row in figures(runs).items()},
        "false_alarms": _false(runs),
        **_share("class_right", right),
        **_share("class_true", true),
        "baselines": {name: _versus(row) for name, row in versus(runs).items()},
        "at_their_recall": {name: _beside(row) for name, row in beside(runs).items()},
        "targets": [
            {
                "what": t.what,
                "value": _finite(t.value),
                "wanted": t.wanted,
                "interval": t.share.interval if t.share else None,
                "met": t.met,
            }
            for t in targets(runs)
        ],
        "confusion": confusion(runs),
        "runs": {run.name: _run(run) for run in runs},
    }


def _figures(row: Figures) -> dict[str, Any]:
    return {
        "runs": row.runs,
        "precision": _finite(row.precision.value),
        "recall": _finite(row.recall.value),
        "lead_median": row.lead(0.5),
        "lead_p10": row.lead(0.1),
        "precision_interval": row.precision.interval,
        "recall_interval": row.recall.interval,
        **_share("critical", row.critical),
        **_share("critical_precision", row.critical_precision),
        **_share("in_time", row.in_time),
        **_share("critical_in_time", row.critical_in_time),
        **_share("named", row.named),
    }


def _versus(row: Versus) -> dict[str, Any]:
    return {
        "recall": _finite(row.recall.value),
        "precision": _finite(row.precision.value),
        "lead_median": row.lead(0.5),
        "lead_p10": row.lead(0.1),
        **_rate(row.false),
        "classes": {
            name: {"recall": _finite(of.recall.value), "lead_median": of.lead(0.5), "lead_p10": of.lead(0.1)}
            for name, of in row.by_class.items()
        },
    }


def _beside(row: Beside) -> dict[str, Any]:
    """Of stabmon, at the rule's recall."""
    return {
        **_share("recall", row.ours_recall),
        **_share("precision", row.ours_precision),
        "sooner_median": _finite(row.median),
        "runs": len(row.sooner),
        "beaten": row.beaten,
    }


def _run(run: Graded) -> dict[str, Any]:
    return {
        "class": run.outcome.label,
        "why": run.outcome.why,
        "onset": run.outcome.onset,
        "alarms": [[s.detector, s.warned, s.critical] for s in run.judged.spoken if s.warned is not None],
    }


def _false(runs: Sequence[Graded]) -> dict[str, Any]:
    false = false_alarms(runs)
    warning = {f"warning_{name}": value for name, value in _rate(false.warning).items()}
    return {
        "checks": false.critical.points,
        "critical": false.critical.events,
        "warning": false.warning.events,
        **_rate(false.critical),
        **warning,
        "critical_per_run_day": _finite(FalseAlarms.per_day(false.critical)),
        "warning_per_run_day": _finite(FalseAlarms.per_day(false.warning)),
        "runs": false.runs.of,
        "runs_critical": false.runs.hits,
        "runs_interval": false.runs.interval,
    }


def _share(name: str, share: Share) -> dict[str, Any]:
    return {name: _finite(share.value), f"{name}_interval": share.interval}


def _rate(rate: Rate) -> dict[str, Any]:
    return {"per_1e5": _finite(rate.per_1e5), "interval": [_finite(bound) for bound in rate.interval]}


def _finite(value: float) -> float | None:
    """JSON has neither NaN nor Inf."""
    return value if abs(value) < float("inf") else None
