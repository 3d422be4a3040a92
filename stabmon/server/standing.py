"""How one run stands: its newest numbers and its alerts, kept up to date from its run log."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from stabmon.catalog import STATISTICS
from stabmon.records import ARCHITECTURE, NOT_SEEN, PART_FAILED, SEVERITIES, Alert, Event, Layout, Run, RunState, Site
from stabmon.runlog.marks import Mark, muted, standing
from stabmon.runlog.progress import Progress
from stabmon.runlog.tail import Chunk, News, Tail
from stabmon.runlog.told import Told
from stabmon.server.progress import pace

POLL_SECONDS = 0.5
"""A run log is asked no more often than this, however many pages look at it."""
RECENT = 50
"""Steps over which the newest numbers are averaged."""
YOUNG_STEPS = 50
"""Before this many steps little can be said of how a run goes."""
_COURSE = 30
"""Rows that are read to tell how it went."""
MODEL = tuple(name for name, row in STATISTICS.items() if row.exported and row.scope == "model")
"""The whole-model statistics that are shown."""
BASELINES = tuple(
    name for name in ("bigram_loss", "class_mean_loss", "unigram_loss", "uniform_loss") if name in STATISTICS
)
"""The hardest to beat first."""
_AVERAGED = ("loss", *BASELINES, "step_seconds", "monitor_seconds")
_BEFORE = (ARCHITECTURE, NOT_SEEN, PART_FAILED)
"""Events that tell what could not be looked at."""


class Standing:
    """`refresh` reads on; everything else is as of the last refresh.

    `last`: read only that many of the newest rows, which is quick however long the run is. `foreign`: it was made of
    another tool's file, which does not say how the run ended.
    """

    def __init__(
        self,
        path: Path,
        last: int | None = None,
        clock: Callable[[], float] = time.monotonic,
        *,
        foreign: bool = False,
    ) -> None:
        self.path, self.foreign = path, foreign
        self.version = 0
        """Grows whenever there is something new to show."""
        self.run: Run | None = None
        self.state: RunState | None = "running"
        """None: nobody knows."""
        self.tail = Tail(path, last)
        self._clock = clock
        self._polled_at = self._asked_at = float("-inf")
        self._touched: tuple[int, ...] | None = None
        self._heard = (float("-inf"), float("-inf"))
        """When there was news last, and when there was none yet."""
        self._course: tuple[int, Sequence[Chunk]] = (-1, ())
        self.marks: Sequence[Mark] = ()
        self.told: Sequence[Told] = ()
        """Who was told of alerts."""
        self._marks: Mapping[str, Mark] = {}
        self._forget()

    def refresh(self) -> bool:
        """Reads some further rows; True: there are more. Errors: those of `stabmon.runlog.read`."""
        now = self._clock()
        if now - self._polled_at < POLL_SECONDS:
            return False
        if (stamp := self.tail.stamp()) == self._touched:
            self._asked_at = now
            return False
        news = self.tail.poll()
        if news.restarted:
            self._forget()
        known = news.run, self._state(news), len(news.marks), len(news.told)
        before = self.run, self.state, len(self.marks), len(self.told)
        if news.chunks or news.alerts or news.events or news.restarted or known != before:
            self.version += 1
        if news.chunks:
            self._heard = now, float("-inf") if news.restarted else self._asked_at
        self._take(news)
        if not news.more:
            self._polled_at, self._touched, self._asked_at = self._clock(), stamp, now
        return news.more

    def look_again(self) -> None:
        """The next refresh reads, however short ago the last one was."""
        self._polled_at, self._touched = float("-inf"), None

    def age(self, now: float) -> float | None:
        """Seconds since the newest step, None before the first; `now`: Unix seconds.

        By the trainer's clock, but no more and no less than was witnessed here: clocks differ, and jump.
        """
        if not self.steps:
            return None
        heard, before = self._heard
        return min(max(now - self.time, self._asked_at - heard, 0.0), self._clock() - before)

    def open_alerts(self) -> list[Alert]:
        """Of each detector the alert that has not ended, worst first."""
        latest = {alert.detector: alert for alert in self.alerts}
        found = (alert for alert in latest.values() if alert.state == "raised")
        return sorted(found, key=lambda alert: -SEVERITIES.index(alert.severity))

    def mark(self, alert: Alert) -> Mark | None:
        """The last word on it; a mute speaks for its detector's other alerts, too, until it is over."""
        if (mark := self._marks.get(alert.id)) and not (mark.kind == "muted" and self.step > (mark.until or 0)):
            return mark
        mutes = (m for m in self._marks.values() if m.kind == "muted" and m.detector == alert.detector)
        return next((mute for mute in mutes if self.step <= (mute.until or 0)), None)

    def muted_until(self, detector: str) -> int | None:
        """The last step of its mute; None: it is not muted."""
        until = muted(self.marks).get(detector, 0)
        return until if until >= self.step else None

    def troubles(self) -> list[Alert]:
        """The open alerts that nobody muted or called false, worst first."""
        return [alert for alert in self.open_alerts() if (m := self.mark(alert)) is None or m.kind == "acknowledged"]

    def losses(self) -> list[float]:
        """Thirty of the whole run, evenly spaced; fewer of a short one, NaN where not read."""
        known = [chunk["loss"] for chunk in self._sampled()]
        return [float(value) for values in known if values.size for value in values[0]]

    def seconds_left(self) -> float | None:
        """Until the planned end, as things go; None where it is not known."""
        planned = self.progress.planned
        if self.state != "running" or self.steps < YOUNG_STEPS or planned is None or planned <= self.step:
            return None
        seconds = pace(self._sampled())
        return None if seconds is None else seconds * (planned - self.step)

    def _sampled(self) -> Sequence[Chunk]:
        """Rows that lie evenly over the whole run."""
        if self._course[0] != self.version:
            self._course = self.version, self.tail.sampled(_COURSE)
        return self._course[1]

    def sites(self, statistic: str) -> tuple[Site, ...]:
        """Where it is taken, in forward order; empty where it is not."""
        return self.layout.sites_of(statistic) if self.layout else ()

    def _forget(self) -> None:
        self.alerts: list[Alert] = []
        self.needs: Mapping[str, Sequence[str]] = {}
        """The detectors, and what they look at; empty in run logs of earlier versions."""
        self.unseen: list[Event] = []
        """What tells of what could not be looked at."""
        self.progress = Progress()
        self.layout: Layout | None = None
        self.steps = 0
        """How many were read."""
        self.first_step = self.step = 0
        self.time = 0.0
        """Unix seconds at the end of the newest step."""
        self.latest: dict[str, float] = {}
        """The value last read of each whole-model statistic."""
        self.recent: dict[str, deque[float]] = {name: deque(maxlen=RECENT) for name in _AVERAGED}
        """Values of the newest steps of losses and times, newest last, NaN where not read."""
        self.totals = dict.fromkeys(("step_seconds", "monitor_seconds"), 0.0)
        """Sums over all steps."""

    def _take(self, news: News) -> None:
        self.run, self.state = news.run, self._state(news)
        self.alerts += (alert for _, alert in news.alerts)
        self.unseen += (event for _, event in news.events if event.kind in _BEFORE)
        self.progress.take(event for _, event in news.events)
        self.marks, self._marks, self.told = news.marks, standing(news.marks), news.told
        for chunk in news.chunks:
            self._add(chunk)

    def _state(self, news: News) -> RunState | None:
        return None if self.foreign else news.state

    def _add(self, chunk: Chunk) -> None:
        self.layout, self.needs = chunk.layout, chunk.needs
        self.first_step = self.first_step or int(chunk.steps[0])
        self.steps += len(chunk.rows)
        self.step, self.time = int(chunk.steps[-1]), float(chunk.times[-1])
        for name in MODEL:
            if chunk.layout.sites_of(name) and (values := chunk[name]).size:
                if name in self.recent:
                    self.recent[name].extend(values[0, -RECENT:].tolist())
                if (read := values[0, ~np.isnan(values[0])]).size:
                    self.latest[name] = float(read[-1])
        for name in self.totals:
            self.totals[name] += float(np.nansum(chunk[name], dtype=np.float64))
