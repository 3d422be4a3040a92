"""The run as Prometheus text. The training thread keeps one array; all labels and lines are made at the scrape."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, count, product
from math import isnan
from threading import Lock

import numpy as np
from prometheus_client import CollectorRegistry, generate_latest
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

_Samples = Mapping[tuple[str, ...], float]
"""Label values (those after run and rank) -> value."""

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
        self._registry = CollectorRegistry()
        self._registry.register(self)
        self._rendering = Lock()
        self._text = b""
        self._stale_at = float("-inf")

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
                self._text = generate_latest(self._registry)
            return self._text

    def collect(self) -> Iterator[Metric]:
        """Every family, for the registry."""
        with self._lock:  # training waits for this lock: references and small copies only
            latest, places, steps, dropped = self._latest, self._places, self._steps, self._dropped
            failures, raised, active = dict(self._failures), dict(self._raised), dict(self._active)
        yield from self._of_run()
        yield self._counter("steps", "Optimizer steps seen.", (), {(): steps})
        yield self._counter("dropped_rows", "Steps lost on their way to the host.", (), {(): dropped})
        yield self._counter("part_failures", "Parts dropped because they raised.", ("part",), failures)
        yield self._counter("alerts", "Alerts raised.", ("detector", "severity"), raised)
        yield self._gauge("alert_active", "1 while an alert is open.", ("detector", "severity"), active)
        if latest is not None:
            yield from self._of_step(latest)
            yield self._gauge(
                "layer_info",
                "Full name of the module behind a layer and its role (label norm or block).",
                ("layer", "role", "module"),
                {(*place, module): 1 for module, place in places.items()},
            )
            for statistic in STATISTICS.values():
                if statistic.exported:
                    yield self._of_statistic(statistic, latest, places)

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

    def _of_statistic(self, row: Statistic, latest: Snapshot, places: Mapping[str, tuple[str, str]]) -> Metric:
        with np.errstate(all="ignore"):  # a ratio of two infinities is not a number, and left out
            values = latest[row.name].tolist()
        sites = latest.layout.sites_of(row.name)
        found = zip(sites, values, strict=True) if values else ()
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
