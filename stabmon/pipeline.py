"""The pipeline: a snapshot goes to every alarm, then with their alerts to every sink. Live and replay share it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Protocol, TypeVar, runtime_checkable

import numpy as np

from stabmon.catalog import Array
from stabmon.detectors import Detector, Informed
from stabmon.detectors.alarm import Alarm
from stabmon.detectors.incidents import Incidents
from stabmon.records import PART_FAILED, Alert, Event, Run, RunState, Snapshot
from stabmon.sinks import Sink

_logger = logging.getLogger("stabmon")


class Judge(Protocol):
    """Turns snapshots into alerts; `detectors.alarm.Alarm` is one."""

    @property
    def name(self) -> str: ...

    def judge(self, snapshot: Snapshot) -> list[Alert]:
        """The alerts that this snapshot raises or clears."""
        ...


@runtime_checkable
class Scored(Protocol):
    """A judge that can say how near its alert line it is."""

    name: str
    needs: tuple[str, ...]
    highest: float
    """Of the snapshot that was judged last; 1 is the line."""


@runtime_checkable
class KeepsScores(Protocol):
    """A sink that also keeps what the judges score."""

    def judged_by(self, needs: Mapping[str, Sequence[str]]) -> None:
        """Who they are and what they look at; once, before anything else."""
        ...

    def scored(self, scores: Array) -> None:
        """float32[judge], before the `emit` that they belong to; NaN: it was dropped."""
        ...


_Part = TypeVar("_Part", Judge, Sink)


class Pipeline:
    """Never raises: a part that does is logged once with its traceback, dropped, and told to the sinks as an event."""

    def __init__(self, run: Run, alarms: Sequence[Judge], sinks: Sequence[Sink]) -> None:
        self.run = run
        self.alerts: list[Alert] = []
        """All so far, in order."""
        self._alarms = list(alarms)
        self._notices = {id(alarm): alarm.notice for alarm in alarms if isinstance(alarm, Informed)}
        self._sinks = list(sinks)
        self._open = tuple(sinks)
        self._incidents = Incidents()
        self._failed: list[Event] = []
        self._scored = [alarm for alarm in alarms if isinstance(alarm, Scored)]
        self._keepers = [sink for sink in sinks if isinstance(sink, KeepsScores)]
        for sink in self._keepers:
            self.have(sink, 0, partial(sink.judged_by, {alarm.name: alarm.needs for alarm in self._scored}))

    def feed(self, snapshot: Snapshot, events: Sequence[Event] = ()) -> list[Alert]:
        """The alerts that the snapshot raised or cleared, after every sink has them.

        A failed alarm is told with this feed, a failed sink with the next: by then others have had this one.
        """
        alerts = self._judged(snapshot, events)
        self.alerts += alerts
        told = [*events, *self._failed]
        self._failed = []
        self._tell_scores(snapshot.step)
        for sink in tuple(self._sinks):
            at = snapshot.step, snapshot.time
            self._guard(sink, at, partial(sink.emit, snapshot, alerts, told))
        return alerts

    def have(self, sink: Sink, step: int, do: Callable[[], None]) -> None:
        """A sink's work beside `emit`: guarded like it, and not done where the sink was dropped."""
        if sink in self._sinks:
            self._guard(sink, (step, time.time()), do)

    def recall(self, feeds: Iterable[tuple[Snapshot, Sequence[Event]]], alerts: Sequence[Alert]) -> Snapshot | None:
        """Show the detectors what was recorded before a resume, whose alerts are known; no sink hears of it again. The
        last snapshot.
        """
        snapshot = None
        for snapshot, events in feeds:
            self._judged(snapshot, events)
        self._incidents.resume(alerts)
        self.alerts += alerts
        return snapshot

    def close(self, state: RunState) -> None:
        """The run is over: every sink, a dropped one too, flushes and lets go. A second call does nothing."""
        for sink in self._open:
            try:
                sink.close(state)
            except Exception:  # the others must still be closed
                _logger.exception("%s failed while closing", sink.name)
        self._alarms, self._sinks, self._open, self._keepers = [], [], (), []

    def _judged(self, snapshot: Snapshot, events: Sequence[Event]) -> list[Alert]:
        """What people hear of what the alarms say."""
        found: list[Alert] = []
        with np.errstate(all="ignore"):  # a run that breaks holds anything; numpy's warnings are not for its log
            for alarm in tuple(self._alarms):
                try:
                    if events and (notice := self._notices.get(id(alarm))):
                        for event in events:
                            notice(event)
                    found += alarm.judge(snapshot)
                except Exception as error:  # a broken part must stop neither the others nor training
                    self._drop(self._alarms, alarm, (snapshot.step, snapshot.time), error)
                    self._incidents.forget(alarm.name)
        return self._incidents.sift(found, snapshot)

    def _tell_scores(self, step: int) -> None:
        if not self._keepers:
            return
        found = [alarm.highest if alarm in self._alarms else np.nan for alarm in self._scored]
        scores = np.array(found, dtype=np.float32)
        for sink in self._keepers:
            self.have(sink, step, partial(sink.scored, scores))

    def _guard(self, sink: Sink, at: tuple[int, float], call: Callable[[], None]) -> None:
        try:
            call()
        except Exception as error:  # nor must a broken sink
            self._drop(self._sinks, sink, at, error)

    def _drop(self, parts: list[_Part], part: _Part, at: tuple[int, float], error: Exception) -> None:
        """While its error is handled."""
        _logger.exception("%s failed at step %d and is dropped; training goes on", part.name, at[0])
        parts.remove(part)
        self._failed.append(Event(*at, PART_FAILED, {"part": part.name, "error": type(error).__name__}))


def build(run: Run, detectors: Sequence[Detector], sinks: Sequence[Sink]) -> Pipeline:
    """The pipeline of live and replay alike: each detector behind an alarm."""
    return Pipeline(run, [Alarm(detector, run.name) for detector in detectors], sinks)
