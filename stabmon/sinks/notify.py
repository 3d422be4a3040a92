"""Alerts to anything that has `send(alert)`: a pager, a phone, a script of your own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from stabmon.records import Alert, Event, RunState, Severity, Snapshot
from stabmon.sinks.delivery import Delivery, Why
from stabmon.sinks.ledger import Ledger
from stabmon.sinks.spool import spool_in


class Target(Protocol):
    """Whom to tell. Called in one thread, not the training's; what it raises is logged and counted, no more."""

    def send(self, alert: Alert) -> None: ...


class Notify:
    """A sink around a target. Named after the target's `name`, else its type; tells it what reaches its `least`
    severity, else warnings and critical alerts.

    `folder`: of runs; what the process could not tell before it died is told by the next one there. None: it is lost.
    `ledger`: as in Delivery.
    ValueError: `target` has no `send`; the text does not show it.
    """

    def __init__(self, target: Target, folder: Path | None = None, ledger: Ledger | None = None) -> None:
        if not callable(getattr(target, "send", None)):
            raise ValueError(
                f"notify: a {type(target).__name__} has no method send(alert); pass an object that has one, "
                "for an Apprise URL stabmon.sinks.apprise.Apprise(url)"
            )
        self.name = str(getattr(target, "name", None) or f"notify_{type(target).__name__.lower()}")
        self._target = target
        least: Severity = getattr(target, "least", "warning")
        spool = spool_in(folder, self.name) if folder else None
        self.delivery = Delivery(self.name, self._send, spool, least, ledger)

    def emit(self, snapshot: Snapshot, alerts: Sequence[Alert], events: Sequence[Event]) -> None:
        self.delivery.take(alerts)

    def close(self, state: RunState) -> None:
        """Waits a few seconds for what is under way; the rest is told by the next process."""
        self.delivery.close()

    def _send(self, alerts: Sequence[Alert], why: Why) -> None:
        """A digest is its newest alert, which says how many there were."""
        *others, last = alerts
        notes = ["sent late: the process ended before it could"] if why == "left_over" else []
        notes += [f"and {len(others)} more since step {others[0].step}"] if others else []
        self._target.send(replace(last, action=f"{last.action} ({'; '.join(notes)})") if notes else last)
