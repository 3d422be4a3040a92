"""Fills the models from a run."""

from __future__ import annotations

import time
from collections.abc import Iterable
from math import isfinite
from statistics import fmean

import numpy as np

from stabmon.catalog import STATISTICS, Array
from stabmon.server import models
from stabmon.server.history import LAYERS, History
from stabmon.server.standing import MODEL, Standing
from stabmon.server.verdict import silent_after, verdict


def run_row(name: str, standing: Standing) -> models.RunRow:
    """A line of the list; the standing is refreshed."""
    assert standing.run is not None
    alerts = standing.open_alerts()
    return models.RunRow(
        id=name,
        name=standing.run.name,
        state=standing.state,
        step=standing.step if standing.steps else None,
        loss=standing.latest.get("loss"),
        started=standing.run.started,
        time=standing.time if standing.steps else None,
        open_alerts=len(alerts),
        verdict=words(standing),
    )


def run(name: str, history: History) -> models.Run:
    """The whole summary."""
    known = history.run
    assert known is not None
    return models.Run(
        id=name,
        name=known.name,
        state=history.state,
        framework=known.framework,
        model=known.model,
        world_size=known.world_size,
        version=known.version,
        started=known.started,
        now=time.time(),
        version_of_data=history.version,
        first_step=history.first_step,
        step=history.step,
        time=history.time,
        silent_after=silent_after(history),
        verdict=words(history),
        values=dict(history.latest),
        cost=cost(history),
        statistics=[taken(statistic, history) for statistic in (*MODEL, *LAYERS) if history.sites(statistic)],
    )


def words(standing: Standing) -> models.Words:
    """The verdict as of now."""
    return models.Words.model_validate(verdict(standing, time.time()))


def cost(history: History) -> models.Cost:
    """What stabmon takes of a step, on the host."""
    ours = _mean(history.recent["monitor_seconds"])
    step = _mean(history.recent["step_seconds"])
    total, wall = history.totals["monitor_seconds"], history.totals["step_seconds"]
    return models.Cost(
        recent_seconds=ours,
        recent_ratio=ours / step if ours is not None and step else None,
        total_seconds=total,
        total_ratio=total / wall if wall else None,
    )


def taken(statistic: str, history: History) -> models.Taken:
    """The catalog's row, and where this run has it."""
    row = STATISTICS[statistic]
    sites = len(history.sites(statistic))
    return models.Taken(name=row.name, unit=row.unit, help=row.help, sites=sites, per_layer=row.scope != "model")


def series(history: History, statistic: str, sites: list[str], first: int, last: int, points: int) -> models.Series:
    """Curves of one statistic; no sites: all of them."""
    row, window = STATISTICS[statistic], history.window(statistic, first, last, points)
    lines = [
        models.Line(site=models.Place.model_validate(site), low=models.numbers(low), high=models.numbers(high))
        for site, low, high in zip(window.sites, window.low, window.high, strict=True)
        if not sites or site.name in sites
    ]
    return models.Series(statistic=row.name, unit=row.unit, help=row.help, steps=window.steps.tolist(), lines=lines)


def layers(history: History, statistic: str, first: int, last: int, points: int) -> models.Layers:
    """The matrix of one statistic, from the first step that was read in the range to its last."""
    row, window = STATISTICS[statistic], history.window(statistic, first, last, 4 * points)
    first, last = max(first, history.first_step), min(last, history.step)
    width = max(1, -(-(last - first + 1) // points))
    steps = range(first, last + 1, width)
    places = np.clip((window.steps - first) // width, 0, len(steps) - 1)
    return models.Layers(
        statistic=row.name,
        unit=row.unit,
        help=row.help,
        width=width,
        steps=list(steps),
        sites=[models.Place.model_validate(site) for site in window.sites],
        values=[models.numbers(values) for values in _highest(window.high, places, len(steps))],
    )


def alerts(history: History) -> models.Alerts:
    """All of the run."""
    standing = {id(alert) for alert in history.open_alerts()}
    rows = [
        models.AlertRow.model_validate(alert).model_copy(update={"open": id(alert) in standing})
        for alert in reversed(history.alerts)
    ]
    return models.Alerts(alerts=rows)


def events(history: History) -> models.Events:
    """The last thousand."""
    return models.Events(events=[models.EventRow.model_validate(event) for event in reversed(history.events)])


def _mean(values: Iterable[float]) -> float | None:
    known = [value for value in values if isfinite(value)]
    return fmean(known) if known else None


def _highest(values: Array, places: np.ndarray[tuple[int, ...], np.dtype[np.int64]], count: int) -> Array:
    """float32[site, cell]: the highest value of each cell."""
    found = np.full((count, len(values)), np.nan, dtype=np.float32)
    np.fmax.at(found, places, values.T)
    return found.T
