"""One recorded run before the detectors and the baselines."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf, isfinite, isnan, sqrt

import numpy as np

from stabmon.bench.recorded.baselines import baselines
from stabmon.bench.recorded.folder import Recording
from stabmon.bench.rules import Incidents
from stabmon.detectors import Informed, loss_detectors
from stabmon.detectors.alarm import Alarm
from stabmon.readers.table import given
from stabmon.records import Alert, Severity


@dataclass(frozen=True, slots=True)
class Call:
    """An alert that was raised."""

    point: int
    """Number of the logged value at which it was, from 0."""
    step: int
    detector: str
    severity: Severity
    until: int
    """Point at which its incident was over; the run's end where it was not."""


@dataclass(frozen=True, slots=True)
class Judged:
    """A run and what was said of it."""

    recording: Recording
    steps: Sequence[int]
    losses: Sequence[float]
    """Inf where not finite; NaN where only the gradient was logged."""
    finite: bool
    """Loss and gradient norm, all of them."""
    calls: Sequence[Call]
    others: Mapping[str, Sequence[int]]
    """By baseline, the points at which its incidents begin."""


@np.errstate(all="ignore")  # as in the pipeline
def judge(recording: Recording) -> Judged:
    """As live and in replay: snapshots one by one, each detector behind its alarm."""
    alarms = [Alarm(detector, recording.id) for detector in loss_detectors()]
    others = {name: Incidents(rule) for name, rule in baselines().items()}
    informed = [alarm for alarm in alarms if isinstance(alarm.detector, Informed)]
    alerts: list[tuple[int, Alert]] = []
    steps, losses = [], []
    finite = True
    for point, (snapshot, events) in enumerate(given(recording.rows, recording.series)):
        for event in events:
            for alarm in informed:
                alarm.notice(event)
        alerts += [(point, alert) for alarm in alarms for alert in alarm.judge(snapshot)]
        loss, square = snapshot.scalar("loss"), snapshot.scalar("total_grad_sq")
        steps.append(snapshot.step)
        losses.append(loss)
        finite = finite and not (loss == inf or square == inf)
        for incidents in others.values() if not isnan(loss) else ():
            incidents.see(point, loss, sqrt(square) if isfinite(square) else square)
    light = replace(recording, rows=[])  # a million rows would stay in memory
    return Judged(
        light, steps, losses, finite, _calls(alerts, len(steps)), {name: seen.began for name, seen in others.items()}
    )


def _calls(alerts: Sequence[tuple[int, Alert]], end: int) -> list[Call]:
    ended = [(point, alert.detector) for point, alert in alerts if alert.state == "cleared"]
    return [
        Call(point, alert.step, alert.detector, alert.severity, until=min(_after(point, alert.detector, ended), end))
        for point, alert in alerts
        if alert.state == "raised"
    ]


def _after(point: int, detector: str, ended: Sequence[tuple[int, str]]) -> int:
    return next((p for p, name in ended if p > point and name == detector), sys.maxsize)
