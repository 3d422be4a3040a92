"""The run as Prometheus text. The training thread keeps one array; all labels and lines are made at the scrape."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, count, product
from math import isnan
from threading import Lock

import numpy as np
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from stabmon.catalog import STATISTICS, Statistic
from stabmon.records import (
    DROPPED_ROWS,
    PART_FAILED,
    RUN_STATES,
    SEVERITIES,
    Alert,
    Event,
    Layout,
    Run,
    RunState,
    Snapshot,
)
from stabmon.sinks.exposition import Frame, text_of

_Samples = Mapping[tuple[str, ...], float]
"""Label values (those after run and rank) -> value."""

_Values = Sequence[Sequence[float]]
"""One per gauge of `Prometheus._gauges`, each one per sample."""
_SHOWN = tuple(row for row in STATISTICS.values() if row.exported)

CACHE_SECONDS = 0.5
"""A rendering is handed out for this long: scrapes cost training at most two renderings a second."""


class Prometheus:
    """A sink whose `render` is the text format 0.0.4. A gauge holds the value last *read*; one never read is absent.

    `detectors` and `parts` are the names whose counters exist at 0 before the first step: `increase()` needs that 0.
    """

    name = "prometheus"

    def __init__(
        self,
        run: Run,
        detectors: Sequence[str] = (),
        parts: Sequence[str] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._run = run
        self._clock = clock
        self._lock = Lock()
        self._latest: Snapshot | None = None
        self._places: dict[str, tuple[str, str]] = {}
        self._state: RunState = "running"
        self._steps = 0
        self._dropped = 0
        self._failures: dict[tuple[str, ...], int] = {(part,): 0 for part in parts}
        self._raised: dict[tuple[str, ...], int] = dict.fromkeys(product(detectors, SEVERITIES), 0)
        self._active = dict(self._raised)
        self._frame: tuple[Layout, Frame] | None = None
        self._rendering = Lock()
        self._text = b""
        self._stale_at = float("-inf")

    def expect(self, parts: Iterable[str]) -> None:
        """Parts whose failures are counted from 0 on as well."""
        with self._lock:
            self._failures = {(part,): 0 for part in parts} | self._failures

    def emit(self, snapshot: Snapshot, alerts: Sequence[Alert], events: Sequence[Event], steps: int = 1) -> None:
        """`steps`: how many the snapshot stands for, when a recorded run is caught up with."""
        with self._lock:
            self._keep(snapshot)
            self._steps += steps
            for alert in alerts:
                self._take(alert)
            for event in events:
                self._count(event)

    def close(self, state: RunState) -> None:
        """The final state shows at the next scrape."""
        with self._lock:
            self._state = state
            self._stale_at = float("-inf")

    def render(self) -> bytes:
        """The text, at most half a second old; many callers at once share one rendering."""
        with self._rendering:
            if self._clock() >= self._stale_at:
                self._stale_at = self._clock() + CACHE_SECONDS
                self._text = self._fresh()
            return self._text

    def collect(self) -> Iterator[Metric]:
        """Every family; `render` gives the same as text."""
        few, latest, places = self._now()
        yield from few
        if latest is not None:
            values = _values(latest, places)
            yield from self._gauges(latest.layout, places, values)

    def _fresh(self) -> bytes:
        few, latest, places = self._now()
        text = text_of(few)
        if latest is None:
            return text
        layout = latest.layout
        if self._frame is None or self._frame[0] is not layout:
            zeros = ([0.0] * len(places), *([0.0] * len(layout.sites_of(row.name)) for row in _SHOWN))
            self._frame = layout, Frame(self._gauges(layout, places, zeros))
        return text + self._frame[1].fill(_values(latest, places))

    def _now(self) -> tuple[Sequence[Metric], Snapshot | None, dict[str, tuple[str, str]]]:
        """What there is one of, and what it takes for the gauges of each layer."""
        with self._lock:  # training waits for this lock: references and small copies only
            latest, places, steps, dropped = self._latest, self._places, self._steps, self._dropped
            failures, raised, active = dict(self._failures), dict(self._raised), dict(self._active)
        few = [
            *self._of_run(),
            self._counter("steps", "Optimizer steps seen.", (), {(): steps}),
            self._counter("dropped_rows", "Steps lost on their way to the host.", (), {(): dropped}),
            self._counter("part_failures", "Parts dropped because they raised.", ("part",), failures),
            self._counter("alerts", "Alerts raised.", ("detector", "severity"), raised),
            self._gauge("alert_active", "1 while an alert is open.", ("detector", "severity"), active),
        ]
        return [*few, *(self._of_step(latest) if latest else ())], latest, places

    def _gauges(self, layout: Layout, places: Mapping[str, tuple[str, str]], values: _Values) -> Iterator[Metric]:
        """The layers' names, then the statistics."""
        named, *found = values
        yield self._gauge(
            "layer_info",
            "Full name of the module behind a layer and its role (label norm, block or sublayer).",
            ("layer", "role", "module"),
            {(*place, module): value for (module, place), value in zip(places.items(), named, strict=True)},
        )
        for row, taken in zip(_SHOWN, found, strict=True):
            yield self._of_statistic(row, layout, taken, places)

    def _of_run(self) -> Iterator[Metric]:
        run = self._run
        about = {"framework": run.framework, "model": run.model, "world_size": str(run.world_size)}
        about["version"] = run.version
        yield self._gauge(
            "run_info", "What is being trained, and the stabmon version.", about, {tuple(about.values()): 1}
        )
        states: _Samples = {(state,): int(state == self._state) for state in RUN_STATES}
        yield self._gauge("run_state", "1 for the state that the run is in.", ("state",), states)
        yield self._gauge("run_start_time_seconds", "Unix time at which the run started.", (), {(): run.started})

    def _of_step(self, latest: Snapshot) -> Iterator[Metric]:
        yield self._gauge("step", "Completed optimizer steps.", (), {(): latest.step})
        yield self._gauge("last_step_timestamp_seconds", "Unix time of the last step.", (), {(): latest.time})

    def _of_statistic(
        self, row: Statistic, layout: Layout, values: Sequence[float], places: Mapping[str, tuple[str, str]]
    ) -> Metric:
        found = zip(layout.sites_of(row.name), values, strict=True) if values else ()
        labels = () if row.scope == "model" else ("layer", row.scope)
        samples: _Samples = {places[s.name] if labels else (): value for s, value in found if not isnan(value)}
        unit = "" if row.unit == "1" else f" Unit: {row.unit}."
        return self._gauge(row.name, row.help + unit, labels, samples)

    def _gauge(self, name: str, text: str, labels: Iterable[str], samples: _Samples) -> Metric:
        return self._filled(GaugeMetricFamily(f"stabmon_{name}", text, labels=("run", "rank", *labels)), samples)

    def _counter(self, name: str, text: str, labels: Iterable[str], samples: _Samples) -> Metric:
        return self._filled(CounterMetricFamily(f"stabmon_{name}", text, labels=("run", "rank", *labels)), samples)

    def _filled(self, family: GaugeMetricFamily | CounterMetricFamily, samples: _Samples) -> Metric:
        for labels, value in samples.items():
            family.add_metric((self._run.name, str(self._run.rank), *labels), value)
        return family

    def _keep(self, snapshot: Snapshot) -> None:
        before = self._latest
        if before is None or (before.layout is not snapshot.layout and before.layout != snapshot.layout):
            self._places = _places(snapshot.layout)
            values = snapshot.values.copy()
        else:
            values = np.where(np.isnan(snapshot.values), before.values, snapshot.values)
        self._latest = replace(snapshot, values=values)

    def _take(self, alert: Alert) -> None:
        for severity in SEVERITIES:
            self._raised.setdefault((alert.detector, severity), 0)
            self._active[alert.detector, severity] = 0
        if alert.state == "raised":
            self._raised[alert.detector, alert.severity] += 1
            self._active[alert.detector, alert.severity] = 1

    def _count(self, event: Event) -> None:
        if event.kind == PART_FAILED:
            part = (str(event.detail["part"]),)
            self._failures[part] = self._failures.get(part, 0) + 1
        elif event.kind == DROPPED_ROWS:
            self._dropped += int(event.detail["count"])


def _values(latest: Snapshot, places: Mapping[str, object]) -> _Values:
    """Of the layers' names, which are there, and of each statistic; NaN, or nothing at all: not read."""
    with np.errstate(all="ignore"):  # a ratio of two infinities is not a number, and left out
        return [[1.0] * len(places), *(latest[row.name].tolist() for row in _SHOWN)]


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
