"""One run from its beginning, in bounded memory: what the charts are drawn from."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from stabmon.catalog import STATISTICS, Array
from stabmon.records import Event, Site
from stabmon.runlog.tail import Chunk, News, Which
from stabmon.server.overview import Column, Ints, Overview, Times
from stabmon.server.standing import MODEL, Standing

REREAD_ROWS, REREAD_VALUES = 20_000, 4_000_000
"""A range of at most this many rows, and values in those that are needed, is read again to show it finer than the
overview has it: less than a tenth of a second."""
LAYERS = tuple(name for name, row in STATISTICS.items() if row.exported and row.scope != "model")
"""The statistics per layer that are shown."""
SCORE = "score"
"""Of the detectors: no statistic, but drawn like one, with a site for each detector."""
OVERVIEW = (4096, 512)
"""Buckets for whole-model values and scores, and for those per layer: a few MB for a large model."""
_KEPT_EVENTS = 1000


@dataclass(frozen=True)
class Window:
    """A statistic over a range of steps: `steps`, `times` [point]; `low`, `high` float32[site, point]."""

    sites: tuple[Site, ...]
    steps: Ints
    times: Times
    low: Array
    high: Array


@dataclass(frozen=True)
class Reading:
    """A statistic at one step: float32[site]."""

    step: int
    sites: tuple[Site, ...]
    values: Array


class History(Standing):
    """A standing that also knows how the run came there."""

    def _forget(self) -> None:
        super()._forget()
        self.events: deque[Event] = deque(maxlen=_KEPT_EVENTS)
        self.first: dict[str, Reading] = {}
        """Of each statistic per layer the first reading."""
        self.newest: dict[str, Reading] = {}
        """And the newest."""
        self.scores: dict[str, tuple[int, float]] = {}
        """Of each detector the newest score, and its step."""
        self._times: dict[int, float] = {}
        """Unix seconds of steps that were asked for."""
        self._scalars, self._layers, self._scored = (Overview(OVERVIEW[i]) for i in (0, 1, 0))

    def window(self, statistic: str, first: int, last: int, points: int) -> Window:
        """That statistic where it was read in the steps from `first` to `last`, in at most `points` points."""
        whole = self._overview(statistic)
        span = whole.span(first, last)
        rows, found = whole.rows[span], Overview(points)
        begin = int(whole.rows[span.start - 1]) if span.start else 0
        if 0 < len(rows) < points and whole.width > 1 and self._few(whole, begin, int(rows[-1])):
            for chunk in self.tail.between(begin + 1, int(rows[-1]), self._which(whole)):
                kept = chunk.only((chunk.steps >= first) & (chunk.steps <= last))
                _put(found, kept, _values(kept, (statistic,)))
        else:
            columns = [column for column in whole.columns if column[0] == statistic]
            places = [whole.columns[column] for column in columns]
            low, high = whole.low[span, places], whole.high[span, places]
            read = ~np.isnan(low).all(axis=1)
            times = whole.times[span][read]
            found.add(columns, rows[read], whole.steps[span][read], times, low[read].T, high[read].T)
        known = {site.name: site for site in self.sites(statistic)} if statistic != SCORE else {}
        sites = tuple(known.get(name, Site(name)) for _, name in found.columns)
        return Window(sites, found.steps, found.times, found.low.T, found.high.T)

    def reading(self, statistic: str, step: int) -> Reading | None:
        """The newest one at or before that step; None: there is none, or it lies too far from others."""
        whole = self._overview(statistic)
        places = [place for column, place in whole.columns.items() if column[0] == statistic]
        until = whole.span(0, step).stop
        if not places:
            return None
        read = np.flatnonzero(~np.isnan(whole.low[:until, places]).all(axis=1))
        for bucket in read[:-3:-1].tolist():  # the newest one may begin before the step and be read after it
            begin = int(whole.rows[bucket - 1]) if bucket else 0
            rows = range(begin + 1, int(whole.rows[bucket]) + 1)
            few = self._few(whole, begin, rows[-1])
            chunks = self.tail.between(rows[0], rows[-1], self._which(whole)) if few else []
            found = [r for chunk in chunks for r in _readings(chunk.only(chunk.steps <= step), statistic)]
            if found:
                return found[-1]
        return None

    def time_at(self, step: int) -> float | None:
        """Unix seconds at the end of that step, or of the first one after it that was read; None: there is none."""
        if step not in self._times:
            place = self._scalars.span(step, step).start
            if place == len(self._scalars.rows):
                return None
            begin = int(self._scalars.rows[place - 1]) if place else 0
            chunks = self.tail.between(begin + 1, int(self._scalars.rows[place]), "model")
            times = [float(time) for c in chunks for at, time in zip(c.steps, c.times, strict=True) if at >= step]
            if not times:
                return None
            self._times[step] = times[0]
        return self._times[step]

    def _few(self, whole: Overview, after: int, last: int) -> bool:
        """Whether those rows can be read again while somebody waits."""
        assert self.layout is not None
        read = int(((whole.rows > after) & (whole.rows <= last)).sum()) * whole.width
        width = len(self.layout.scalar_slots if whole is self._scalars else self.layout.columns)
        return last - after <= REREAD_ROWS and read * width <= REREAD_VALUES

    def _which(self, whole: Overview) -> Which:
        if whole is self._scored:
            return "all"  # a score counts where what the detector looks at was read
        return "sampled" if whole is self._layers else "model"

    def _overview(self, statistic: str) -> Overview:
        if statistic == SCORE:
            return self._scored
        return self._scalars if statistic in MODEL else self._layers

    def _take(self, news: News) -> None:
        super()._take(news)
        self.events += (event for _, event in news.events)

    def _add(self, chunk: Chunk) -> None:
        super()._add(chunk)
        _put(self._scalars, chunk, _values(chunk, MODEL))
        _put(self._scored, chunk, _values(chunk, (SCORE,)))
        for name, scores in zip(chunk.needs, chunk.scores, strict=True):
            if len(read := np.flatnonzero(~np.isnan(scores))):
                self.scores[name] = int(chunk.steps[read[-1]]), float(scores[read[-1]])
        sampled = chunk.only(chunk.sampled)
        found = list(_values(sampled, LAYERS))
        _put(self._layers, sampled, found)
        for name, sites, values in found:
            if len(read := np.flatnonzero(~np.isnan(values).all(axis=0))):
                first, last = (Reading(int(sampled.steps[i]), sites, values[:, i].copy()) for i in read[[0, -1]])
                self.first.setdefault(name, first)
                self.newest[name] = last


_Values = tuple[str, tuple[Site, ...], Array]
"""Of one statistic: float32[site, row]."""


def _values(chunk: Chunk, statistics: Iterable[str]) -> Iterator[_Values]:
    """Those that this layout has."""
    for name in statistics:
        if name == SCORE:
            if chunk.needs:
                yield name, tuple(Site(detector) for detector in chunk.needs), chunk.scores
        elif (sites := chunk.layout.sites_of(name)) and (values := chunk[name]).size:
            yield name, sites, values


def _readings(chunk: Chunk, statistic: str) -> Iterator[Reading]:
    for _, sites, values in _values(chunk, (statistic,)):
        for i in np.flatnonzero(~np.isnan(values).all(axis=0)):
            yield Reading(int(chunk.steps[i]), sites, values[:, i])


def _put(overview: Overview, chunk: Chunk, found: Iterable[_Values]) -> None:
    """Add the rows in which any of the statistics was read."""
    columns: list[Column] = []
    parts: list[Array] = []
    for name, sites, part in found:
        columns += [(name, site.name) for site in sites]
        parts.append(part)
    if parts:
        values = np.concatenate(parts)
        read = ~np.isnan(values).all(axis=0)
        overview.add(columns, chunk.rows[read], chunk.steps[read], chunk.times[read], values[:, read], values[:, read])
