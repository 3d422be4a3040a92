"""One incident, one alert, also where several detectors see it: a symptom is withheld while its cause is told of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from stabmon.detectors.alarm import over
from stabmon.records import SEVERITIES, Alert, Snapshot

_ALL_OF_THE_LOSS = ("nonfinite", "exploded", "diverged")

EXPLAINED_BY: Mapping[str, tuple[str, ...]] = {
    "exploded": ("nonfinite",),
    "diverged": ("nonfinite", "exploded", "context_stall"),
    "spike": _ALL_OF_THE_LOSS,
    "flat": (*_ALL_OF_THE_LOSS, "context_stall"),
    "residual_blowup": ("nonfinite",),
}
"""Detector -> those whose open alert, of the same or a higher severity, already tells of what it sees. No circles."""


class Incidents:
    """Between the alarms and the sinks. What it lets through is in order for each detector: raised, raised at another
    severity, cleared.

    An alert is withheld while one that explains it is open at its severity or a higher one; raised once that one has
    ended, if the symptom still stands; and closed as part of it where it was raised first. Of a withheld alert no end
    is told.
    """

    def __init__(self, explained_by: Mapping[str, tuple[str, ...]] = EXPLAINED_BY) -> None:
        self._explained_by = explained_by
        self._standing: dict[str, Alert] = {}
        """What each detector's alarm has open."""
        self._told: dict[str, Alert] = {}
        """What each detector's readers have open."""
        self._settled = True

    def sift(self, alerts: Sequence[Alert], snapshot: Snapshot) -> list[Alert]:
        """What people hear of the alarms' alerts of one step, causes first, ends last; mostly nothing."""
        if not alerts and self._settled:
            return []  # nearly every step: without news nothing is explained otherwise than before
        self._settled = True
        for alert in alerts:
            if alert.state == "raised":
                self._standing[alert.detector] = alert
            else:
                self._standing.pop(alert.detector, None)
        news = {alert.detector: alert for alert in alerts}
        heard = [self._of(name, news.get(name), snapshot) for name in {**news, **self._standing, **self._told}]
        return sorted((alert for alert in heard if alert), key=lambda alert: alert.state == "cleared")

    def forget(self, detector: str) -> None:
        """It judges no more, so it explains nothing; what it has raised stays as it is."""
        self._told.pop(detector, None)
        if self._standing.pop(detector, None):
            self._settled = False

    def resume(self, told: Iterable[Alert]) -> None:
        """After the alarms were shown a run again: what was told before it was stopped, in order."""
        latest = {alert.detector: alert for alert in told}
        self._told = {name: alert for name, alert in latest.items() if alert.state == "raised"}
        self._settled = False

    def _of(self, detector: str, news: Alert | None, snapshot: Snapshot) -> Alert | None:
        standing, told = self._standing.get(detector), self._told.get(detector)
        cause = self._cause(standing) if standing else None
        if standing and not cause:
            if told and not news:
                return None
            self._told[detector] = standing
            return news or replace(standing, step=snapshot.step, time=snapshot.time)
        if told is None:
            return None
        del self._told[detector]
        if cause:
            part = f"has {detector} as part of {cause.detector}, which tells of it from here on"
            return over(told, snapshot, part)
        return news or over(told, snapshot)

    def _cause(self, symptom: Alert) -> Alert | None:
        """The open alert that already tells of it."""
        found = (self._standing.get(name) for name in self._explained_by.get(symptom.detector, ()))
        severe = SEVERITIES.index(symptom.severity)
        return next((alert for alert in found if alert and SEVERITIES.index(alert.severity) >= severe), None)
