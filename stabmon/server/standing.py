"""How one run stands: its newest numbers and its alerts, kept up to date from its run log."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

import numpy as np

from stabmon.catalog import STATISTICS
from stabmon.records import SEVERITIES, Alert, Layout, Run, RunState, Site
from stabmon.runlog.tail import Chunk, News, Tail

POLL_SECONDS = 0.5
"""A run log is asked no more often than this, however many pages look at it."""
RECENT = 50
"""Steps over which the newest numbers are averaged."""
MODEL = tuple(name for name, row in STATISTICS.items() if row.exported and row.scope == "model")
"""The whole-model statistics that are shown."""


class Standing:
    """`refresh` reads on; everything else is as of the last refresh.

    `last`: read only that many of the newest rows, which is quick however long the run is.
    """

    def __init__(self, path: Path, last: int | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self.path = path
        self.version = 0
        """Grows whenever there is something new to show."""
        self.run: Run | None = None
        self.state: RunState = "running"
        self._tail = Tail(path, last)
        self._clock = clock
        self._polled_at = float("-inf")
        self._touched: tuple[int, ...] | None = None
        self._forget()

    def refresh(self) -> bool:
        """Reads some further rows; True: there are more. Errors: those of `stabmon.runlog.read`."""
        if self._clock() - self._polled_at < POLL_SECONDS:
            return False
        if (touched := _touched(self.path)) == self._touched:
            return False
        news = self._tail.poll()
        if news.restarted:
            self._forget()
        if news.chunks or news.alerts or news.restarted or (news.run, news.state) != (self.run, self.state):
            self.version += 1
        self._take(news)
        if not news.more:
            self._polled_at, self._touched = self._clock(), touched
        return news.more

    def open_alerts(self) -> list[Alert]:
        """Of each detector the alert that has not ended, worst first."""
        latest = {alert.detector: alert for alert in self.alerts}
        found = (alert for alert in latest.values() if alert.state == "raised")
        return sorted(found, key=lambda alert: -SEVERITIES.index(alert.severity))

    def sites(self, statistic: str) -> tuple[Site, ...]:
        """Where it is taken, in forward order; empty where it is not."""
        return self.layout.sites_of(statistic) if self.layout else ()

    def _forget(self) -> None:
        self.alerts: list[Alert] = []
        self.layout: Layout | None = None
        self.steps = 0
        """How many were read."""
        self.first_step = self.step = 0
        self.time = 0.0
        """Unix seconds at the end of the newest step."""
        self.latest: dict[str, float] = {}
        """The value last read of each whole-model statistic."""
        self.recent: dict[str, deque[float]] = {name: deque(maxlen=RECENT) for name in MODEL}
        """Values of the newest steps, newest last, NaN where not read."""
        self.totals = dict.fromkeys(("step_seconds", "monitor_seconds"), 0.0)
        """Sums over all steps."""

    def _take(self, news: News) -> None:
        self.run, self.state = news.run, news.state
        self.alerts += (alert for _, alert in news.alerts)
        for chunk in news.chunks:
            self._add(chunk)

    def _add(self, chunk: Chunk) -> None:
        self.layout = chunk.layout
        self.first_step = self.first_step or int(chunk.steps[0])
        self.steps += len(chunk.rows)
        self.step, self.time = int(chunk.steps[-1]), float(chunk.times[-1])
        for name in MODEL:
            if (values := chunk[name]).size:
                self.recent[name].extend(values[0, -RECENT:].tolist())
                if (read := values[0, ~np.isnan(values[0])]).size:
                    self.latest[name] = float(read[-1])
        for name in self.totals:
            self.totals[name] += float(np.nansum(chunk[name], dtype=np.float64))


def _touched(path: Path) -> tuple[int, ...]:
    """Differs once the run log was written to: SQLite writes to the file itself or to its write-ahead log."""
    found: list[int] = []
    for file in (path, path.with_name(f"{path.name}-wal")):
        if file.exists():
            status = file.stat()
            found += [status.st_ino, status.st_mtime_ns, status.st_size]
    return tuple(found)
