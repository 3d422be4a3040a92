"""One run from its beginning, in bounded memory: what the charts are drawn from."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from stabmon.catalog import STATISTICS, Array
from stabmon.records import Event, Site
from stabmon.runlog.tail import Chunk, News
from stabmon.server.overview import Column, Ints, Overview
from stabmon.server.standing import MODEL, Standing

REREAD_ROWS = 20_000
"""A range of at most this many rows is read again to show it finer than the overview has it."""
LAYERS = tuple(name for name, row in STATISTICS.items() if row.exported and row.scope != "model")
"""The statistics per layer that are shown."""
OVERVIEW = (4096, 512)
"""Buckets for whole-model values, and for those per layer: a few MB for a large model."""
_KEPT_EVENTS = 1000


@dataclass(frozen=True)
class Window:
    """A statistic over a range of steps: `steps` int64[point]; `low`, `high` float32[site, point]."""

    sites: tuple[Site, ...]
    steps: Ints
    low: Array
    high: Array


class History(Standing):
    """A standing that also knows how the run came there."""

    def _forget(self) -> None:
        super()._forget()
        self.events: deque[Event] = deque(maxlen=_KEPT_EVENTS)
        self._scalars, self._layers = (Overview(capacity) for capacity in OVERVIEW)

    def window(self, statistic: str, first: int, last: int, points: int) -> Window:
        """That statistic where it was read in the steps from `first` to `last`, in at most `points` points."""
        whole = self._scalars if statistic in MODEL else self._layers
        span = whole.span(first, last)
        rows, found = whole.rows[span], Overview(points)
        begin = int(whole.rows[span.start - 1]) if span.start else 0
        if 0 < len(rows) < points and whole.width > 1 and rows[-1] - begin <= REREAD_ROWS:
            for chunk in self._tail.between(begin + 1, int(rows[-1])):
                _put(found, chunk.only((chunk.steps >= first) & (chunk.steps <= last)), (statistic,))
        else:
            columns = [column for column in whole.columns if column[0] == statistic]
            places = [whole.columns[column] for column in columns]
            low, high = whole.low[span, places], whole.high[span, places]
            read = ~np.isnan(low).all(axis=1)
            found.add(columns, rows[read], whole.steps[span][read], low[read].T, high[read].T)
        known = {site.name: site for site in self.sites(statistic)}
        sites = tuple(known.get(name, Site(name)) for _, name in found.columns)
        return Window(sites, found.steps, found.low.T, found.high.T)

    def _take(self, news: News) -> None:
        super()._take(news)
        self.events += (event for _, event in news.events)

    def _add(self, chunk: Chunk) -> None:
        super()._add(chunk)
        _put(self._scalars, chunk, MODEL)
        _put(self._layers, chunk.only(chunk.sampled), LAYERS)


def _put(overview: Overview, chunk: Chunk, statistics: Iterable[str]) -> None:
    """Add the rows in which any of the statistics was read."""
    columns: list[Column] = []
    found: list[Array] = []
    for name in statistics:
        values = chunk[name]
        if values.size:
            columns += [(name, site.name) for site in chunk.layout.sites_of(name)]
            found.append(values)
    if found:
        values = np.concatenate(found)
        read = ~np.isnan(values).all(axis=0)
        overview.add(columns, chunk.rows[read], chunk.steps[read], values[:, read], values[:, read])
