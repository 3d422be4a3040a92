"""Alerts, failures and losses, counted. All stand at 0 before the first step: `increase()` needs that 0."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import product

from prometheus_client.core import Metric

from stabmon.records import DROPPED_ROWS, PART_FAILED, SEVERITIES, Alert, Event
from stabmon.sinks.families import Families

_Counts = dict[tuple[str, ...], float]


class Tally:
    """`detectors`, `parts`: the names that are counted from the beginning."""

    def __init__(self, detectors: Iterable[str], parts: Iterable[str]) -> None:
        self._raised: _Counts = dict.fromkeys(product(detectors, SEVERITIES), 0)
        self._active: _Counts = dict(self._raised)
        self._last: _Counts = {}
        self._since: _Counts = {}
        self._failures: _Counts = {(part,): 0 for part in parts}
        self._dropped = 0

    def expect(self, parts: Iterable[str]) -> None:
        self._failures = {(part,): 0 for part in parts} | self._failures

    def copy(self) -> Tally:
        other = Tally((), ())
        for name, value in vars(self).items():
            setattr(other, name, value.copy() if isinstance(value, dict) else value)
        return other

    def recall(self, alerts: Sequence[Alert]) -> None:
        """What was raised before a resume is open if it was; this process has not raised it."""
        for alert in alerts:
            self._stand(alert)

    def take(self, alert: Alert) -> None:
        self._stand(alert)
        if alert.state == "raised":
            self._raised[alert.detector, alert.severity] += 1

    def count(self, event: Event) -> None:
        if event.kind == PART_FAILED:
            part = (str(event.detail["part"]),)
            self._failures[part] = self._failures.get(part, 0) + 1
        elif event.kind == DROPPED_ROWS:
            self._dropped += int(event.detail["count"])

    def _stand(self, alert: Alert) -> None:
        who = (alert.detector,)
        for severity in SEVERITIES:
            self._raised.setdefault((alert.detector, severity), 0)
            self._active[alert.detector, severity] = 0
        self._since.pop(who, None)
        if alert.state == "raised":
            self._active[alert.detector, alert.severity] = 1
            self._last[who], self._since[who] = alert.step, alert.since

    def collect(self, families: Families) -> Iterator[Metric]:
        one, both = ("detector",), ("detector", "severity")
        yield families.counter("dropped_rows", "Steps lost on their way to the host.", (), {(): self._dropped})
        yield families.counter("part_failures", "Parts dropped because they raised.", ("part",), self._failures)
        yield families.counter("alerts", "Alerts raised.", both, self._raised)
        yield families.gauge("alert_active", "1 while an alert is open.", both, self._active)
        yield families.gauge("alert_last_step", "Step of a detector's newest alert.", one, self._last)
        yield families.gauge("alert_since_step", "Step at which what an open alert tells of began.", one, self._since)
