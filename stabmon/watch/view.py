"""What is shown of a run at one moment."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite

from stabmon.records import SEVERITIES, RunState, Severity
from stabmon.server import models
from stabmon.server.numbers import Answer, Number
from stabmon.watch.source import Source

SIGNALS: Mapping[str, str] = {
    "norm_input_msq": "norm input",
    "norm_gain": "norm gain",
    "grad_norm": "gradient",
    "output_change_ratio": "output change",
}
"""The four signals, as a row is called."""
POINTS = 200
"""As many as the widest screen has columns."""


class At(Answer):
    """A reading at a layer."""

    place: models.Place
    value: Number


class Signal(Answer):
    """One of the four signals over the layers."""

    statistic: str
    step: int
    """Of the newest reading."""
    lowest: At
    highest: At
    since: int
    """The first step that was read."""
    moved: models.Place
    """The layer that changed most since then."""
    factor: Number
    """By how much: now / then."""
    curve: list[Number]
    """Of that layer, from the first step to the newest."""


class View(Answer):
    """All of the screen. Severities and verdict as on the page."""

    run: str
    state: RunState | None
    verdict: models.Words
    step: int
    age: Number
    """Seconds since the newest step."""
    silent: bool
    loss: Number
    losses: list[Number]
    """From the first step to the newest, the highest of what is merged."""
    mean_loss: Number
    """Of the newest steps, as the baselines are."""
    baselines: dict[str, Number]
    eval_loss: Number
    signals: list[Signal]
    alerts: list[models.AlertRow]
    """Open ones, worst first."""
    cost: models.Cost

    @property
    def worst(self) -> Severity | None:
        return self.alerts[0].severity if self.alerts else None


def look(source: Source) -> View:
    """The run as it stands. NoAnswer: it cannot be had."""
    run = source.run()
    open_ones = [alert for alert in source.alerts().alerts if alert.open]
    taken = {row.name for row in run.statistics}
    return View(
        run=run.name,
        state=run.state,
        verdict=run.verdict,
        step=run.step,
        age=run.age,
        silent=run.silent,
        loss=run.values.get("loss"),
        losses=_highest(source.series("loss", POINTS)) if "loss" in taken else [],
        mean_loss=run.loss_mean,
        baselines=run.baselines,
        eval_loss=run.values.get("eval_loss"),
        signals=[found for name in SIGNALS if name in taken and (found := signal(source, name))],
        alerts=sorted(open_ones, key=lambda alert: -SEVERITIES.index(alert.severity)),
        cost=run.cost,
    )


def signal(source: Source, statistic: str) -> Signal | None:
    """None where nothing was read yet."""
    profile = source.profile(statistic)
    rows = [
        (place, now, then)
        for place, now, then in zip(profile.sites, profile.latest, profile.first, strict=True)
        if now is not None
    ]
    if not rows:
        return None
    ranked = sorted(rows, key=lambda row: row[1])
    moved, now, then = max(rows, key=lambda row: _distance(row[1], row[2]))
    return Signal(
        statistic=statistic,
        step=profile.latest_step,
        lowest=At(place=ranked[0][0], value=ranked[0][1]),
        highest=At(place=ranked[-1][0], value=ranked[-1][1]),
        since=profile.first_step,
        moved=moved,
        factor=_factor(now, then),
        curve=_highest(source.series(statistic, POINTS, moved.name)),
    )


def _factor(now: float, then: float | None) -> float | None:
    if then is None or not isfinite(then) or then == 0:
        return None
    return now / then


def _distance(now: float, then: float | None) -> float:
    """How far apart, the same for twice and half; what is not finite is farthest."""
    if not isfinite(now):
        return float("inf")
    factor = _factor(now, then)
    if factor is None or factor <= 0:
        return 0.0
    return max(factor, 1 / factor)


def _highest(series: models.Series) -> list[Number]:
    return list(series.lines[0].high) if series.lines else []
