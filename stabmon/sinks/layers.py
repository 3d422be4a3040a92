"""The statistics as gauges: which there are in a layout, with what labels, and how many at most."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, count
from math import isnan

import numpy as np
from prometheus_client.core import Metric

from stabmon.catalog import PEAKS, STATISTICS, Array, Statistic
from stabmon.records import Layout, Snapshot
from stabmon.sinks.exposition import Frame
from stabmon.sinks.families import Families, Samples
from stabmon.sinks.peaks import WINDOW_SECONDS

_SHOWN = tuple(row for row in STATISTICS.values() if row.exported)
_Values = Sequence[Sequence[float]]
"""One per family, each one per sample; NaN, or nothing at all: not read."""

_log = logging.getLogger("stabmon")


class Gauges:
    """Of one layout. `room`: for how many series per layer; what has none is left out by whole statistics, the
    catalog's last first."""

    def __init__(self, layout: Layout, families: Families, room: int) -> None:
        self.layout = layout
        self.dropped = 0
        """Series that are left out."""
        self._families = families
        self._places = _places(layout)
        self._named = self._fits(len(self._places), room)
        room -= len(self._places) * self._named
        self._peaks, room = self._kept([STATISTICS[name] for name in PEAKS], room)
        self._rows, _ = self._kept(_SHOWN, room)
        zeros = [[0.0] * self._named * len(self._places)]
        zeros += [[0.0] * len(layout.sites_of(row.name)) for row in (*self._rows, *self._peaks)]
        self.frame = Frame(self._made(zeros))
        if self.dropped:
            _log.warning(
                "stabmon: /metrics leaves out %d series per layer, since max_series allows no more; "
                "raise it, or watch fewer layers by `include`",
                self.dropped,
            )

    def values(self, latest: Snapshot, peaks: Array) -> _Values:
        """What the frame is filled with."""
        with np.errstate(all="ignore"):  # a ratio of two infinities is not a number, and left out
            found = [[1.0] * self._named * len(self._places), *(latest[row.name].tolist() for row in self._rows)]
            sizes = [latest[name].size for name in PEAKS]
        parts = dict(zip(PEAKS, np.split(peaks, np.cumsum(sizes)[:-1]), strict=True))
        return [*found, *(parts[row.name].tolist() for row in self._peaks)]

    def collect(self, latest: Snapshot, peaks: Array) -> Iterator[Metric]:
        yield from self._made(self.values(latest, peaks))

    def _kept(self, rows: Iterable[Statistic], room: int) -> tuple[Sequence[Statistic], int]:
        kept = []
        for row in rows:
            size = 0 if row.scope == "model" else len(self.layout.sites_of(row.name))
            if self._fits(size, room):
                kept.append(row)
                room -= size
        return kept, room

    def _fits(self, size: int, room: int) -> bool:
        self.dropped += size if size > room else 0
        return size <= room

    def _made(self, values: _Values) -> Iterator[Metric]:
        named, *found = values
        text = "Full name of the module behind a layer and its role (label norm, block or sublayer)."
        modules: Samples = {
            (*place, module): value for (module, place), value in zip(self._places.items(), named, strict=False)
        }
        yield self._families.gauge("layer_info", text, ("layer", "role", "module"), modules)
        shown = [*((row, False) for row in self._rows), *((row, True) for row in self._peaks)]
        for (row, peak), taken in zip(shown, found, strict=True):
            yield self._of(row, taken, peak)

    def _of(self, row: Statistic, values: Sequence[float], peak: bool) -> Metric:
        found = zip(self.layout.sites_of(row.name), values, strict=True) if values else ()
        labels = () if row.scope == "model" else ("layer", row.scope)
        samples: Samples = {self._places[s.name] if labels else (): value for s, value in found if not isnan(value)}
        unit = "" if row.unit == "1" else f" Unit: {row.unit}."
        if peak:
            text = f"Maximum of {row.name} over the {WINDOW_SECONDS} s up to the last step."
            return self._families.gauge(f"{row.name}_window_max", text + unit, labels, samples)
        return self._families.gauge(row.name, row.help + unit, labels, samples)


def _places(layout: Layout) -> dict[str, tuple[str, str]]:
    """Module -> (layer, role), unique: two series with the same labels would cost the whole scrape."""
    places: dict[str, tuple[str, str]] = {}
    taken: set[tuple[str, str]] = set()
    for site in layout.sites:
        if site.name:
            roles = chain([site.role], (f"{site.role}_{n}" for n in count(2)))
            places[site.name] = next(p for role in roles if (p := (site.layer_label, role)) not in taken)
            taken.add(places[site.name])
    return places
