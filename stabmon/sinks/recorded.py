"""The Prometheus text of recorded runs: their run logs are read on at each scrape, as if the runs were served live."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from prometheus_client.core import Metric

from stabmon.runlog.tail import News, Tail
from stabmon.sinks.exposition import Shared, text_of
from stabmon.sinks.prometheus import Prometheus

READ_SECONDS = 0.5
"""A scrape reads on for about this long. A run that is not read to its end by then is not served yet, since counters
that grow by reading would look like news."""


class RecordedMetrics:
    """`render` is the text of every run log there is; of two runs with one name, only the newer.

    `run_logs`: id -> file, newest first. `detectors`: whose counters exist at 0 before their first alert.
    """

    def __init__(
        self,
        run_logs: Callable[[], Mapping[str, Path]],
        detectors: Sequence[str] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._run_logs = run_logs
        self._detectors = detectors
        self._clock = clock
        self._runs: dict[Path, _Run] = {}
        self._text = Shared(lambda: text_of(self.collect()), clock)

    def render(self) -> bytes:
        """The text format 0.0.4, at most half a second old."""
        return self._text.get()

    def collect(self) -> Iterator[Metric]:
        """Every family once, with the samples of all runs."""
        families: dict[tuple[str, str], Metric] = {}  # a gauge may be called as a counter is without its _total
        for sink in self._served():
            for family in sink.collect():
                key = family.name, family.type
                families.setdefault(key, Metric(family.name, family.documentation, family.type))
                families[key].samples += family.samples
        yield from families.values()

    def _served(self) -> Iterable[Prometheus]:
        until = self._clock() + READ_SECONDS
        paths = self._run_logs().values()
        self._runs = {path: self._runs.get(path) or _Run(path, self._detectors) for path in paths}
        found: dict[str, Prometheus] = {}
        for run in self._runs.values():
            if (sink := run.read(lambda: self._clock() < until)) is not None:
                found.setdefault(run.name, sink)
        return found.values()


class _Run:
    """One run log, and the sink that was fed with it."""

    def __init__(self, path: Path, detectors: Sequence[str]) -> None:
        self.name = ""
        self._tail = Tail(path)
        self._detectors = detectors
        self._sink: Prometheus | None = None
        self._complete = False
        self._read_at: tuple[int, ...] = ()
        """The file's stamp when it was read last."""

    def read(self, in_time: Callable[[], bool]) -> Prometheus | None:
        """The sink, once it has all rows; None before, and for a file that cannot be read."""
        try:
            # Most have ended: to open each of a thousand at every scrape would leave no time for one that is new.
            if (stamp := self._tail.stamp()) == self._read_at and self._complete:
                return self._sink
            while in_time():
                news = self._tail.poll()
                self._feed(news)
                self._complete = not news.more
                if self._complete:
                    self._read_at = stamp
                    break
        except (OSError, ValueError):
            self._complete = False
        return self._sink if self._complete else None

    def _feed(self, news: News) -> None:
        if self._sink is None or news.restarted:
            self.name = news.run.name
            self._sink = Prometheus(news.run, self._detectors)
        for chunk in news.chunks:
            for part in (chunk.only(chunk.rows < news.resumed_at), chunk.only(chunk.rows >= news.resumed_at)):
                if len(part.rows):
                    self._sink.catch_up(part, counted=int(part.rows[0]) >= news.resumed_at)
        self._sink.recall([alert for row, alert in news.alerts if row < news.resumed_at])
        self._sink.note(
            [alert for row, alert in news.alerts if row >= news.resumed_at],
            [event for row, event in news.events if row >= news.resumed_at],
        )
        self._sink.close(news.state)
