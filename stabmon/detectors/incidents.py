"""One incident, one alert, also where several detectors see it: a symptom is withheld while its cause is told of."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from stabmon.detectors.alarm import over
from stabmon.records import SEVERITIES, Alert, Snapshot

_LOSS = ("nonfinite", "exploded", "diverged", "loss_shift")

EXPLAINED_BY: Mapping[str, tuple[str, ...]] = {
    "exploded": ("nonfinite", "loss_shift", "residual_blowup", "attention_blowup", "update_shock"),
    "diverged": ("nonfinite", "loss_shift", "exploded", "residual_blowup", "attention_blowup", "update_shock"),
    "loss_shift": ("nonfinite", "residual_blowup", "update_shock"),
    "spike": (*_LOSS, "residual_blowup", "attention_blowup", "update_shock", "gradient_spike"),
    "flat": (*_LOSS, "context_stall"),
    "context_stall": (*_LOSS, "residual_blowup", "wiring"),
    "dead_layers": ("context_stall", "wiring"),
    "residual_blowup": ("nonfinite",),
    "attention_blowup": ("nonfinite", "residual_blowup"),
    "dead_units": ("nonfinite", "context_stall", "residual_blowup", "update_shock"),
    "update_shock": ("nonfinite", "residual_blowup", "attention_blowup"),
    "gradient_spike": (*_LOSS, "residual_blowup", "update_shock", "attention_blowup"),
    "precision": ("nonfinite", "residual_blowup"),
    "logit_drift": ("nonfinite", "context_stall", "residual_blowup"),
}
"""Symptom -> causes. Of two that see the same, the more severe alert is told, at the same severity the cause's. So no
circles: of two detectors, one is the cause."""

LASTING = ("wiring",)
"""Causes that do not pass: what they explain goes on while they do, and is mended with them. They are told whatever the
severity of their symptoms, and at that severity."""


class Incidents:
    """Between the alarms and the sinks. What it lets through is in order for each detector: raised, raised at another
    severity, cleared.

    An alert is withheld while a more telling one is open; raised once that one has ended, if it still stands then; and
    closed as part of it where it was raised first. Of a withheld alert no end is told. A cause that lasts is raised to
    the severity of its symptoms, and eased with them.
    """

    def __init__(
        self, explained_by: Mapping[str, tuple[str, ...]] = EXPLAINED_BY, lasting: Collection[str] = LASTING
    ) -> None:
        self._causes = explained_by
        self._lasting = lasting
        self._symptoms: dict[str, list[str]] = {}
        for symptom, causes in explained_by.items():
            for cause in causes:
                self._symptoms.setdefault(cause, []).append(symptom)
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
            whole = self._whole(standing)
            if told and told.severity == whole.severity and (not news or self._lasts(standing)):
                return None
            self._told[detector] = whole
            return replace(whole, step=snapshot.step, time=snapshot.time)
        if told is None:
            return None
        del self._told[detector]
        if cause:
            part = f"has {detector} as part of {self._root(cause).detector}, which tells of it from here on"
            return over(told, snapshot, part)
        return news or over(told, snapshot)

    def _root(self, cause: Alert) -> Alert:
        """The one that is told: what explains may be part of something itself."""
        while further := self._cause(cause):
            cause = further
        return cause

    def _cause(self, alert: Alert) -> Alert | None:
        """The more telling alert that is open."""
        causes = self._causes.get(alert.detector, ())
        related = (*causes, *self._symptoms.get(alert.detector, ()))
        found = (self._standing.get(name) for name in related)
        return next((a for a in found if a and self._outweighs(a, alert, a.detector in causes)), None)

    def _outweighs(self, other: Alert, alert: Alert, is_cause: bool) -> bool:
        if self._lasts(other if is_cause else alert):
            return is_cause
        more = _rank(other) - _rank(alert)
        return more > 0 or (more == 0 and is_cause)

    def _lasts(self, alert: Alert) -> bool:
        return alert.detector in self._lasting and alert.severity != "info"

    def _whole(self, alert: Alert) -> Alert:
        """With what it does by now, if that is worse: a cause that lasts is told instead of its symptoms."""
        open_ones = (self._standing.get(name) for name in self._symptoms.get(alert.detector, ()))
        mine = [symptom for symptom in open_ones if symptom and self._cause(symptom) is alert]
        worst = max(mine, key=_rank, default=alert)
        if not self._lasts(alert) or _rank(worst) <= _rank(alert):
            return alert
        then = f"If it goes on once that is mended: {worst.remedies[0]}"
        return replace(
            alert,
            severity=worst.severity,
            cause=f"{alert.cause} It shows as {worst.detector} since step {worst.since}.",
            remedies=(*alert.remedies, then) if worst.remedies else alert.remedies,
        )


def _rank(alert: Alert) -> int:
    return SEVERITIES.index(alert.severity)
