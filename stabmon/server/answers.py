"""Fills the models from a run. Plain functions of a history, which need no HTTP."""

from __future__ import annotations

import time
from collections.abc import Sequence
from math import isfinite

import numpy as np

from stabmon.catalog import STATISTICS, Array, Statistic
from stabmon.server import models
from stabmon.server.history import LAYERS, SCORE, History, Window
from stabmon.server.judged import detectors, unseen
from stabmon.server.numbers import numbers
from stabmon.server.profiles import profile
from stabmon.server.progress import left
from stabmon.server.standing import BASELINES, MODEL, Standing
from stabmon.server.titles import called
from stabmon.server.told import alerts, events, last_good, since_time
from stabmon.server.verdict import is_silent, mean_of, silent_after, verdict

__all__ = [
    "alerts",
    "cost",
    "curves",
    "detectors",
    "events",
    "layers",
    "profile",
    "run",
    "run_row",
    "scores",
    "series",
    "taken",
    "unseen",
    "words",
]

_SCORE = Statistic(SCORE, "model", "1", "How near a detector is to its alert line, which is 1.", "max")


def run_row(name: str, standing: Standing) -> models.RunRow:
    """A line of the list; the standing is refreshed."""
    assert standing.run is not None
    now, open_alerts = time.time(), standing.troubles()
    return models.RunRow(
        id=name,
        name=standing.run.name,
        state=standing.state,
        step=standing.step if standing.steps else None,
        loss=standing.latest.get("loss"),
        started=standing.run.started,
        time=standing.time if standing.steps else None,
        age=standing.age(now),
        silent=is_silent(standing, now),
        open_alerts=len(open_alerts),
        severity=open_alerts[0].severity if open_alerts else None,
        alerts=sum(alert.state == "raised" for alert in standing.alerts),
        model=standing.run.model,
        framework=standing.run.framework,
        planned=standing.progress.planned,
        left=_left(standing, now)[1],
        spark=numbers(np.array(standing.losses(), dtype=np.float32)),
        verdict=words(standing, now),
    )


def run(name: str, history: History) -> models.Run:
    """The whole summary."""
    known, now, wrong = history.run, time.time(), history.troubles()
    assert known is not None
    seconds_left, left_words = _left(history, now)
    return models.Run(
        id=name,
        name=known.name,
        state=history.state,
        framework=known.framework,
        model=known.model,
        world_size=known.world_size,
        version=known.version,
        started=known.started,
        now=now,
        version_of_data=history.version,
        first_step=history.first_step,
        step=history.step,
        time=history.time,
        rows=history.steps,
        planned=history.progress.planned,
        seconds_left=seconds_left,
        left=left_words,
        checkpoint=last_good(history),
        since_time=since_time(history, wrong[0]) if wrong else None,
        age=history.age(now),
        silent=is_silent(history, now),
        silent_after=silent_after(history),
        marks_version=len(history.marks),
        verdict=words(history, now),
        unseen=unseen(history),
        values=dict(history.latest),
        loss_mean=mean_of(history.recent["loss"]),
        baselines={called(name): mean_of(history.recent[name]) for name in BASELINES if history.recent[name]},
        settings=dict(known.settings),
        environment=_environment(history),
        labels=known.labels,
        cost=cost(history),
        statistics=[taken(statistic, history) for statistic in (*MODEL, *LAYERS) if history.sites(statistic)],
    )


def _left(standing: Standing, now: float) -> tuple[float | None, str]:
    """Seconds to the planned end, and the same in words."""
    seconds = None if is_silent(standing, now) else standing.seconds_left()
    return seconds, "" if seconds is None else left(seconds)


def _environment(history: History) -> dict[str, str | float]:
    """What was recorded, and what is known of run logs that recorded none."""
    known = history.run
    assert known is not None
    about: dict[str, str | float] = {"framework": known.framework, "model": known.model}
    return {**about, "world_size": known.world_size, "stabmon": known.version, **known.environment}


def words(standing: Standing, now: float | None = None) -> models.Words:
    """The verdict as of now."""
    found = verdict(standing, time.time() if now is None else now)
    phrases = [row.what for row in unseen(standing)]
    return models.Words(level=found.level, title=found.title, text=found.text, basis=found.basis, unseen=phrases)


def cost(history: History) -> models.Cost:
    """What stabmon takes of a step, on the host."""
    ours, step = (mean_of(history.recent[name]) for name in ("monitor_seconds", "step_seconds"))
    total, wall = history.totals["monitor_seconds"], history.totals["step_seconds"]
    return models.Cost(
        recent_seconds=ours,
        recent_ratio=ours / step if isfinite(ours) and step > 0 else None,
        total_seconds=total,
        total_ratio=total / wall if wall else None,
    )


def taken(statistic: str, history: History) -> models.Taken:
    """The catalog's row, and where this run has it."""
    row = STATISTICS[statistic]
    sites = len(history.sites(statistic))
    return models.Taken(name=row.name, unit=row.unit, help=row.help, sites=sites, per_layer=row.scope != "model")


def series(history: History, statistic: str, sites: Sequence[str], first: int, last: int, points: int) -> models.Series:
    """Curves of one statistic; no sites: all of them."""
    return _series(STATISTICS[statistic], history.window(statistic, first, last, points), sites)


def curves(history: History, statistics: Sequence[str], first: int, last: int, points: int) -> models.Curves:
    """Those of several."""
    return models.Curves(curves=[series(history, name, (), first, last, points) for name in statistics])


def scores(history: History, detectors: Sequence[str], first: int, last: int, points: int) -> models.Series:
    """A curve of each detector; none named: all of them."""
    return _series(_SCORE, history.window(SCORE, first, last, points), detectors)


def _series(row: Statistic, window: Window, sites: Sequence[str]) -> models.Series:
    lines = [
        models.Line(site=models.Place.model_validate(site), low=numbers(low), high=numbers(high))
        for site, low, high in zip(window.sites, window.low, window.high, strict=True)
        if not sites or site.name in sites
    ]
    return models.Series(
        statistic=row.name,
        unit=row.unit,
        help=row.help,
        steps=window.steps.tolist(),
        times=_rising(window.times).tolist(),
        lines=lines,
    )


def layers(history: History, statistic: str, first: int, last: int, points: int) -> models.Layers:
    """The matrix of one statistic, from the first step that was read in the range to its last."""
    row, window = STATISTICS[statistic], history.window(statistic, first, last, 4 * points)
    first, last = max(first, history.first_step), min(last, history.step)
    width = max(1, -(-(last - first + 1) // points))
    steps = range(first, last + 1, width)
    places = np.clip((window.steps - first) // width, 0, len(steps) - 1)
    times = np.interp(steps, window.steps, _rising(window.times)).tolist() if len(window.steps) else []
    return models.Layers(
        statistic=row.name,
        unit=row.unit,
        help=row.help,
        width=width,
        steps=list(steps),
        times=times,
        sites=[models.Place.model_validate(site) for site in window.sites],
        values=[numbers(values) for values in _highest(window.high, places, len(steps))],
    )


def _rising(
    times: np.ndarray[tuple[int, ...], np.dtype[np.float64]],
) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """Where the trainer's clock was set back they stand still: an axis knows no way back."""
    found: np.ndarray[tuple[int, ...], np.dtype[np.float64]] = np.maximum.accumulate(times)
    return found


def _highest(values: Array, places: np.ndarray[tuple[int, ...], np.dtype[np.int64]], count: int) -> Array:
    """float32[site, cell]: the highest value of each cell; places: the cells of the values, in order."""
    found = np.full((len(values), count), np.nan, dtype=np.float32)
    if len(places):
        starts = np.flatnonzero(np.diff(places, prepend=-1))
        found[:, places[starts]] = np.fmax.reduceat(values, starts, axis=1)
    return found
