"""One recorded training before the detectors, and before the rules in use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf, nan, sqrt
from pathlib import Path

import numpy as np

from stabmon.bench.detection.curves import Curve, Floats
from stabmon.bench.detection.outcomes import Class
from stabmon.bench.detection.telling import tells_of
from stabmon.bench.rules import Cusum, Incidents, LossNotDecreasing, Patience, RmsT, Rule, SixSigma, ZClip
from stabmon.detectors import default_detectors
from stabmon.pipeline import build
from stabmon.records import PART_FAILED, SEVERITIES, Alert, Event, RunState, Snapshot
from stabmon.runlog import read


@dataclass(frozen=True, slots=True)
class Spoken:
    """One incident that people were told of."""

    detector: str
    classes: tuple[Class, ...]
    """What its first warning told of, the likeliest first."""
    warned: int | None = None
    """Step at which it was a warning or worse; None: an info to its end."""
    critical: int | None = None
    told: tuple[tuple[int, int, float], ...] = ()
    """(step, severity as its place in SEVERITIES, score) of each time that people heard of it."""


@dataclass(frozen=True, slots=True)
class Ruled:
    """What a rule said of a run, as steps."""

    spoke: Sequence[int]
    began: Sequence[int]
    """Of its incidents."""


@dataclass(frozen=True)
class Judged:
    """A run, and what was said of it."""

    name: str
    curve: Curve
    spoken: Sequence[Spoken]
    """In the order in which they began."""
    rules: Mapping[str, Ruled]
    """Without those that lacked what they look at."""


def rules() -> dict[str, Rule]:
    """A fresh one of each, by name."""
    return {
        "patience-100": Patience(),
        "6 sigma/128, loss": SixSigma(),
        "6 sigma/128, gradient": SixSigma("grad_norm"),
        "ZClip z>2.5": ZClip(),
        "RMS_t>=2.3": RmsT(),
        "LossNotDecreasing(10)": LossNotDecreasing(),
        "CUSUM": Cusum(limit=8),
    }


class _Rows:
    """A sink that keeps what labels and rules are made from."""

    name = "rows"

    def __init__(self) -> None:
        self.rows: list[tuple[float, ...]] = []
        self.failed: list[Event] = []

    def emit(self, snapshot: Snapshot, alerts: Sequence[Alert], events: Sequence[Event]) -> None:
        self.failed += [event for event in events if event.kind == PART_FAILED]
        square, rms_t = snapshot.scalar("total_grad_sq"), snapshot["rms_t"]
        worst = float(np.fmax.reduce(rms_t)) if rms_t.size else nan
        losses = (snapshot.scalar(name) for name in ("loss", "unigram_loss", "bigram_loss"))
        self.rows.append((snapshot.step, *losses, sqrt(square) if 0 <= square < inf else square, worst))

    def close(self, state: RunState) -> None:
        """Nothing to let go of."""


def judge(path: Path) -> Judged:
    """Replays a run log: alerts that it holds are not looked at, the detectors of today are.

    RuntimeError: one of them failed.
    """
    recorded, rows = read(path), _Rows()
    pipeline = build(recorded.run, default_detectors(), [rows])
    for snapshot, events in recorded.feeds():
        pipeline.feed(snapshot, events)
    pipeline.close(recorded.state)
    if rows.failed:
        raise RuntimeError(f"{path}: {dict(rows.failed[0].detail)}")
    steps, loss, unigram, bigram, grad_norm, rms_t = np.array(rows.rows).T
    curve = Curve(steps.astype(np.int64), loss, unigram, bigram)
    return Judged(path.stem, curve, spoken(pipeline.alerts), _ruled(curve, grad_norm, rms_t))


def spoken(alerts: Sequence[Alert]) -> list[Spoken]:
    """An incident lasts from where a detector raises an alert to where it clears it, whatever the severity becomes."""
    found: list[Spoken] = []
    current: dict[str, int] = {}
    for alert in alerts:
        if alert.state == "cleared":
            current.pop(alert.detector, None)
            continue
        if alert.detector not in current:
            current[alert.detector] = len(found)
            found.append(Spoken(alert.detector, tells_of(alert)))
        at = current[alert.detector]
        found[at] = _louder(found[at], alert)
    return found


def _louder(was: Spoken, alert: Alert) -> Spoken:
    told = (*was.told, (alert.step, SEVERITIES.index(alert.severity), alert.score))
    if alert.severity == "info":
        return replace(was, told=told)
    classes = tells_of(alert) if was.warned is None else was.classes
    warned = alert.step if was.warned is None else was.warned
    critical = alert.step if alert.severity == "critical" and was.critical is None else was.critical
    return Spoken(was.detector, classes, warned, critical, told)


def _ruled(curve: Curve, grad_norm: Floats, rms_t: Floats) -> dict[str, Ruled]:
    found = {}
    loss = np.where(np.isfinite(curve.loss), curve.loss, inf)
    for name, rule in rules().items():
        if name.startswith("RMS_t") and np.isnan(rms_t).all():
            continue
        seen = Incidents(rule)
        for point, values in enumerate(zip(loss.tolist(), grad_norm.tolist(), rms_t.tolist(), strict=True)):
            seen.see(point, *values)
        found[name] = Ruled(curve.steps[seen.points].tolist(), curve.steps[seen.began].tolist())
    return found
