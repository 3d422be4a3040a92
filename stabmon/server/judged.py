"""The detectors of a run: how each stands, and what could not be looked at."""

from __future__ import annotations

from collections.abc import Sequence

from stabmon import records
from stabmon.catalog import STATISTICS
from stabmon.records import PART_FAILED, Alert, Event
from stabmon.server import models
from stabmon.server.history import History
from stabmon.server.standing import Standing
from stabmon.server.titles import meaning, runbook

_RESTART = "Restart the run to have it back; its log has the traceback."


def detectors(history: History) -> models.Detectors:
    """In the order in which they judge: worst failure first. Of a run log without scores, those that told something."""
    needs = history.needs or dict.fromkeys((alert.detector for alert in history.alerts), ())
    rows = [_row(history, name, watches) for name, watches in needs.items()]
    return models.Detectors(recorded=bool(history.needs), detectors=rows)


def _row(history: History, name: str, watches: Sequence[str]) -> models.DetectorRow:
    alert = next((alert for alert in history.open_alerts() if alert.detector == name), None)
    missing = [statistic for statistic in watches if statistic in STATISTICS and not history.sites(statistic)]
    step, score = history.scores.get(name, (None, None))
    until = history.muted_until(name)
    state, reason = _state(history, name, alert, watches, missing)
    return models.DetectorRow(
        name=name,
        title=meaning(name),
        runbook=runbook(name),
        watches=list(watches),
        missing=missing,
        state=state,
        reason=reason,
        severity=alert.severity if alert else None,
        since=alert.since if alert else None,
        score=score,
        score_step=step,
        muted_until=until,
    )


def _state(
    history: History, name: str, alert: Alert | None, watches: Sequence[str], missing: Sequence[str]
) -> tuple[models.DetectorState, str]:
    """And the reason, where it does not do its work."""
    failed = next(
        (event for event in history.unseen if event.kind == PART_FAILED and event.detail.get("part") == name), None
    )
    if failed:
        return "failed", f"It failed at step {failed.step:,} ({failed.detail.get('error', 'an error')}). {_RESTART}"
    if watches and history.steps and watches[0] in missing:
        return "cannot_run", f"It needs {watches[0]}, which this run does not read."
    if (until := history.muted_until(name)) is not None:
        return "muted", f"Muted until step {until:,}."
    return ("alert" if alert else "quiet"), ""


def unseen(standing: Standing) -> list[models.Unseen]:
    """What could not be looked at, in the order in which it was found."""
    return [row for event in standing.unseen if (row := _unseen(event))]


def _unseen(event: Event) -> models.Unseen | None:
    detail = {name: str(value) for name, value in event.detail.items()}
    match event.kind:
        case records.NOT_SEEN:
            what, why, todo = (detail.get(name, "") for name in ("what", "why", "todo"))
        case records.ARCHITECTURE:
            norms = detail.get("not_seen", "")
            what = f"norms in {norms}" if norms else ""
            why, todo = "They are functions, not layers.", "Use nn.LayerNorm or nn.RMSNorm to have them watched."
        case _:
            what = detail.get("part", "a part").replace("_", " ")
            why, todo = f"It failed ({detail.get('error', 'an error')}) and was dropped.", _RESTART
    return models.Unseen(step=event.step, what=what, why=why, todo=todo) if what else None
