"""From scores to alerts: one incident per detector, with hold, clear and cool-down."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from stabmon.catalog import Array
from stabmon.detectors import Detector, Informed
from stabmon.records import SEVERITIES, Alert, Event, Finding, Severity, Snapshot

HIGHEST = 1e6
"""Score that is told; JSON knows no Inf."""


class Alarm:
    """Judges a detector's scores, so that a person hears of an incident once, of its change, and of its end.

    `hold`: readings in a row at the alert line before it is raised; a critical one is raised at once.
    `clear`: readings in a row under the line before it is cleared, or at a lower severity before it is eased.
    `cooldown`: steps during which the same or a lower severity is not raised again.
    """

    def __init__(
        self, detector: Detector, run_name: str, *, hold: int = 1, clear: int = 10, cooldown: int = 100
    ) -> None:
        for name, value, least in (("hold", hold, 1), ("clear", clear, 1), ("cooldown", cooldown, 0)):
            if value < least:
                raise ValueError(f"{name} is {value}; pass a whole number >= {least}")
        self.detector = detector
        self.run_name = run_name
        self.hold = hold
        self.clear = clear
        self.cooldown = cooldown
        self.open: Alert | None = None
        self.highest = float("nan")
        """Score of the step that was judged last, wherever it is highest; NaN where its statistic is not taken."""
        self._hears = detector if isinstance(detector, Informed) else None
        self._above = 0
        self._below = 0
        self._eased = 0
        self._quiet_until = 0
        self._loudest = -1

    @property
    def name(self) -> str:
        """The detector's."""
        return self.detector.name

    @property
    def needs(self) -> tuple[str, ...]:
        """The statistics that the detector reads."""
        return self.detector.needs

    def notice(self, event: Event) -> None:
        """For a detector that wants to know."""
        if self._hears is not None:
            self._hears.notice(event)

    def judge(self, snapshot: Snapshot) -> list[Alert]:
        """The alerts of this step: raised, changed in severity, or cleared; mostly none. Numpy's warnings, of a run
        that breaks, are the caller's to ignore: once for all alarms.
        """
        scores = self.detector.score(snapshot)
        self.highest = scores.item(scores.argmax()) if scores.size else float("nan")
        if self.open is None and not self._above and not self.highest >= 1:
            return []  # nearly every step
        if np.isnan(snapshot[self.detector.needs[0]]).all():
            return []
        worst = int(np.argmax(scores))
        if scores[worst] < 1:
            return self._judge_below(snapshot, float(scores[worst]))
        return self._judge_above(snapshot, scores, worst)

    def _judge_below(self, snapshot: Snapshot, score: float) -> list[Alert]:
        self._above = self._eased = 0
        self._below += 1
        if self.open is None or self._below < self.clear:
            return []
        ended = over(replace(self.open, score=score), snapshot)
        self.open = None
        self._quiet_until = snapshot.step + self.cooldown
        return [ended]

    def _judge_above(self, snapshot: Snapshot, scores: Array, worst: int) -> list[Alert]:
        self._below = 0
        self._above += 1
        finding = self.detector.explain(worst)
        if not self._speaks(finding.severity, snapshot.step):
            return []
        self._eased = 0
        rank = SEVERITIES.index(finding.severity)
        self._loudest = rank if snapshot.step >= self._quiet_until else max(rank, self._loudest)
        self._quiet_until = snapshot.step + self.cooldown
        self.open = self._alert(snapshot, scores, worst, finding)
        return [self.open]

    def _speaks(self, severity: Severity, step: int) -> bool:
        """Whether a finding of this severity is news."""
        rank = SEVERITIES.index(severity)
        current = -1 if self.open is None else SEVERITIES.index(self.open.severity)
        if rank == current:
            self._eased = 0
            return False
        if rank < current:
            self._eased += 1
            return self._eased >= self.clear
        if step < self._quiet_until and rank <= self._loudest:
            return False
        return severity == "critical" or self._above >= self.hold

    def _alert(self, snapshot: Snapshot, scores: Array, worst: int, finding: Finding) -> Alert:
        site = finding.site or snapshot.layout.sites_of(self.detector.needs[0])[worst]
        alerting = int((scores >= 1).sum())
        return Alert(
            run=self.run_name,
            detector=self.detector.name,
            state="raised",
            severity=finding.severity,
            step=snapshot.step,
            time=snapshot.time,
            since=self.open.since if self.open else finding.since,  # one incident began once
            site=site.name,
            layer=site.layer,
            score=min(float(scores[worst]), HIGHEST),
            action=finding.action,
            cause=finding.cause,
            remedies=finding.remedies,
            ruled_out=finding.ruled_out,
            evidence={**finding.evidence, **({"sites": alerting} if alerting > 1 else {})},
        )


def over(alert: Alert, snapshot: Snapshot, action: str = "") -> Alert:
    """The end of an alert."""
    return replace(
        alert,
        state="cleared",
        step=snapshot.step,
        time=snapshot.time,
        action=action or f"is out of {alert.detector}, which began at step {alert.since}",
        cause="",
        remedies=(),
        ruled_out=(),
        evidence={},
    )
