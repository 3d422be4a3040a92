"""What was told: alerts with what people said of them, events."""

from __future__ import annotations

from contextlib import suppress

from stabmon.records import Alert
from stabmon.runlog.marks import muted_at
from stabmon.runlog.progress import named
from stabmon.server import models
from stabmon.server.history import History
from stabmon.server.titles import runbook


def alerts(history: History) -> models.Alerts:
    """All of the run."""
    open_ones = {id(alert) for alert in history.open_alerts()}
    ends = _ends(history.alerts)
    rows = []
    for alert in reversed(history.alerts):
        more: dict[str, object] = {
            "open": id(alert) in open_ones,
            "ended": ends.get(id(alert)),
            "runbook": runbook(alert.detector),
        }
        if alert.state == "raised":
            more |= _of_raised(history, alert)
        rows.append(models.AlertRow.model_validate(alert).model_copy(update=more))
    return models.Alerts(alerts=rows)


def _of_raised(history: History, alert: Alert) -> dict[str, object]:
    mark, found = history.mark(alert), history.progress.checkpoint(alert.since)
    latest = {told.to: told for told in history.told if told.alert == alert.id}
    return {
        "since_time": since_time(history, alert),
        "mark": models.Mark.model_validate(mark) if mark else None,
        "checkpoint": models.Checkpoint.model_validate(found) if found else None,
        "remedies": [named(remedy, found) for remedy in alert.remedies],
        "saves": history.progress.saves,
        "told": [models.Sent.model_validate(told) for told in latest.values()],
        "hushed_until": muted_at(history.marks, alert.step).get(alert.detector),
    }


def since_time(history: History, alert: Alert) -> float | None:
    """Unix seconds at which it began; None where that is not known."""
    with suppress(OSError, ValueError):
        return history.time_at(alert.since)
    return None


def last_good(history: History) -> models.Checkpoint | None:
    """The last checkpoint, or that of before the worst that is wrong now."""
    wrong = [alert.since for alert in history.troubles()[:1] if alert.severity != "info"]
    found = history.progress.checkpoint(*wrong)
    return models.Checkpoint.model_validate(found) if found else None


def events(history: History) -> models.Events:
    """The last thousand."""
    return models.Events(events=[models.EventRow.model_validate(event) for event in reversed(history.events)])


def _ends(told: list[Alert]) -> dict[int, int]:
    """Step at which each raised alert was over: cleared, or raised again at another severity."""
    found: dict[int, int] = {}
    standing: dict[str, Alert] = {}
    for alert in told:
        if before := standing.pop(alert.detector, None):
            found[id(before)] = alert.step
        if alert.state == "raised":
            standing[alert.detector] = alert
    return found
