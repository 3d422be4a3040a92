"""What was told: alerts with what people said of them, events."""

from __future__ import annotations

from stabmon.records import Alert
from stabmon.server import models
from stabmon.server.history import History
from stabmon.server.titles import runbook


def alerts(history: History) -> models.Alerts:
    """All of the run."""
    open_ones = {id(alert) for alert in history.open_alerts()}
    ends = _ends(history.alerts)
    rows = []
    for alert in reversed(history.alerts):
        mark = history.mark(alert) if alert.state == "raised" else None
        more = {
            "open": id(alert) in open_ones,
            "ended": ends.get(id(alert)),
            "runbook": runbook(alert.detector),
            "mark": models.Mark.model_validate(mark) if mark else None,
        }
        rows.append(models.AlertRow.model_validate(alert).model_copy(update=more))
    return models.Alerts(alerts=rows)


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
