"""The run as Prometheus text. The training thread hands a row over; all else is done at the scrape, or by the batch."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from threading import Lock

from prometheus_client.core import Metric

from stabmon.catalog.served import COST, SOURCES
from stabmon.records import RUN_STATES, Alert, Event, Run, RunState, Snapshot
from stabmon.runlog.tail import Chunk
from stabmon.sinks.delivery import Delivery
from stabmon.sinks.exposition import Shared, text_of
from stabmon.sinks.families import Families, Samples
from stabmon.sinks.layers import Gauges
from stabmon.sinks.readings import BOUNDS, Readings, View, together
from stabmon.sinks.tally import Tally

MAX_SERIES = 20_000
BATCH = 64
"""Rows that wait at most until they are folded in."""


class Prometheus:
    """A sink whose `render` is the text format 0.0.4. A gauge holds the value last *read*; one never read is absent.

    `detectors` and `parts` are the names whose counters exist at 0 before the first step. `max_series`: how many series
    there may be before detail per layer is left out. `ranks`: how many ranks serve numbers of their own; None where
    only this one does.
    """

    name = "prometheus"

    def __init__(
        self,
        run: Run,
        detectors: Sequence[str] = (),
        parts: Sequence[str] = (),
        max_series: int = MAX_SERIES,
        clock: Callable[[], float] = time.monotonic,
        ranks: int | None = None,
    ) -> None:
        self._run = run
        self._ranks = ranks
        self._families = Families(run)
        self._max_series = max_series
        self._clock = clock
        self._lock = Lock()
        """Held for moments: training waits for it."""
        self._tally = Tally(detectors, parts)
        self._state: RunState = "running"
        self._waiting: list[Snapshot] = []
        self._folding = Lock()
        """Of the readings."""
        self._readings = Readings()
        self._gauges: Gauges | None = None
        self._deliveries: Sequence[Delivery] = ()
        self._seconds: float | None = None
        """That the last rendering took."""
        self._text = Shared(self._fresh, clock)

    def expect(self, parts: Iterable[str], deliveries: Sequence[Delivery] = ()) -> None:
        """Parts whose failures are counted from 0 on as well, and whose messages are counted."""
        with self._lock:
            self._tally.expect(parts)
            self._deliveries = deliveries

    def recall(self, alerts: Sequence[Alert]) -> None:
        """The alerts of before a resume: those that are open are shown as such, none is counted again."""
        with self._lock:
            self._tally.recall(alerts)

    def emit(self, snapshot: Snapshot, alerts: Sequence[Alert], events: Sequence[Event]) -> None:
        changed = self._waiting and self._waiting[-1].layout is not snapshot.layout
        if changed or len(self._waiting) >= BATCH:
            self._fold()
        with self._lock:
            self._waiting.append(Snapshot(snapshot.step, snapshot.time, snapshot.values.copy(), snapshot.layout))
            self._note(alerts, events)

    def catch_up(self, chunk: Chunk, counted: bool) -> None:
        """The values of rows, as if each had been emitted; without `counted`, by the process before a resume."""
        with self._folding:
            self._readings.add(chunk, counted)

    def note(self, alerts: Sequence[Alert], events: Sequence[Event]) -> None:
        """What was raised and what happened in such rows."""
        with self._lock:
            self._note(alerts, events)

    def close(self, state: RunState) -> None:
        """The final state shows at the next scrape."""
        with self._lock:
            self._state = state
        self._text.expire()

    def render(self) -> bytes:
        """The text, at most half a second old; many callers at once share one rendering."""
        return self._text.get()

    def collect(self) -> Iterator[Metric]:
        """Every family; `render` gives the same as text."""
        few, view = self._now()
        yield from few
        if view.latest is not None:
            yield from self._gauges_of(view.latest, few).collect(view.latest, view.peaks)
        yield from self._of_rendering()

    def _fresh(self) -> bytes:
        started = self._clock()
        few, view = self._now()
        text = text_of(few)
        if view.latest is not None:
            gauges = self._gauges_of(view.latest, few)
            text += gauges.frame.fill(gauges.values(view.latest, view.peaks))
        self._seconds = self._clock() - started
        return text + text_of(self._of_rendering())

    def _now(self) -> tuple[Sequence[Metric], View]:
        """What there is little of, and what it takes for the statistics."""
        self._fold()
        with self._folding:
            view = self._readings.view()
        with self._lock:
            tally, state, deliveries = self._tally.copy(), self._state, self._deliveries
        few = [
            *_of_run(self._families, self._run, state, self._ranks),
            *_of_steps(self._families, view),
            *tally.collect(self._families),
            _of_messages(self._families, deliveries),
        ]
        return few, view

    def _gauges_of(self, latest: Snapshot, few: Sequence[Metric]) -> Gauges:
        if self._gauges is None or self._gauges.layout is not latest.layout:
            room = self._max_series - sum(len(family.samples) for family in few)
            self._gauges = Gauges(latest.layout, self._families, room)
        return self._gauges

    def _of_rendering(self) -> Iterator[Metric]:
        dropped = self._gauges.dropped if self._gauges else 0
        text = "Series per layer that are left out, since max_series allows no more."
        yield self._families.gauge("series_dropped", text, (), {(): dropped})
        if self._seconds is not None:
            yield self._families.gauge("render_seconds", "Time that this rendering took.", (), {(): self._seconds})

    def _note(self, alerts: Sequence[Alert], events: Sequence[Event]) -> None:
        for alert in alerts:
            self._tally.take(alert)
        for event in events:
            self._tally.count(event)

    def _fold(self) -> None:
        with self._folding:
            with self._lock:
                rows, self._waiting = self._waiting, []
            if rows:
                self._readings.add(together(rows))


def _of_run(families: Families, run: Run, state: RunState, ranks: int | None) -> Iterator[Metric]:
    about = {"framework": run.framework, "model": run.model, "world_size": str(run.world_size)}
    about |= {"version": run.version, **run.labels}
    yield families.gauge(
        "run_info",
        "What is being trained, the stabmon version, and labels of yours.",
        about,
        {tuple(about.values()): 1},
    )
    states: Samples = {(one,): int(one == state) for one in RUN_STATES}
    yield families.gauge("run_state", "1 for the state that the run is in.", ("state",), states)
    yield families.gauge("run_start_time_seconds", "Unix time at which the run started.", (), {(): run.started})
    if ranks is not None:
        text = "Ranks of the run, each of which serves numbers of its own."
        yield families.gauge("world_size", text, (), {(): ranks})


def _of_steps(families: Families, view: View) -> Iterator[Metric]:
    latest, totals = view.latest, view.totals
    broken: Samples = {(source,): number for source, number in zip(SOURCES, totals.nonfinite, strict=True)}
    text = "Steps with a value that is not finite, without those that a loss scaler skipped."
    yield families.counter("steps", "Optimizer steps seen.", (), {(): totals.steps})
    yield families.counter("nonfinite_steps", text, ("source",), broken)
    text = "Host time that stabmon took in all steps."
    yield families.counter(COST, text, (), {(): totals.monitor_seconds})
    text = "Wall time from step to step."
    yield families.histogram("step_duration_seconds", text, BOUNDS, totals.durations, totals.duration_sum)
    if latest is not None:
        yield families.gauge("step", "Completed optimizer steps.", (), {(): latest.step})
        yield families.gauge("last_step_timestamp_seconds", "Unix time of the last step.", (), {(): latest.time})


def _of_messages(families: Families, deliveries: Sequence[Delivery]) -> Metric:
    counts: dict[tuple[str, ...], float] = {}
    for delivery in deliveries:
        for outcome, number in delivery.outcomes().items():
            counts[delivery.name, outcome] = counts.get((delivery.name, outcome), 0) + number
    return families.counter("notifications", "Alerts handed to a channel.", ("channel", "outcome"), counts)
