"""What a rank other than 0 serves: its steps, their time and what stabmon takes of it. The layers are rank 0's."""

from __future__ import annotations

import logging
import os
import time
from contextlib import suppress
from pathlib import Path

import numpy as np

from stabmon import __version__
from stabmon.catalog.served import COST, DURATION
from stabmon.records import Layout, Run, RunState, Snapshot
from stabmon.server.port import DEFAULT_PORT, is_free
from stabmon.server.thread import Server, serve
from stabmon.settings import Settings
from stabmon.sinks.prometheus import Prometheus
from stabmon.taps.hooks import spent

LAYOUT = Layout(((DURATION, ""), (COST, "")), ())

_log = logging.getLogger("stabmon")


class Summary:
    """Never raises: a rank that cannot serve trains all the same. Its port is rank 0's and the local rank, or any."""

    def __init__(self, run: str, rank: int, world_size: int, settings: Settings) -> None:
        about = Run(run, time.time(), rank, world_size, version=__version__, labels=settings.labels)
        self._settings = settings
        self._metrics = Prometheus(about)
        self._server = self._served(about)
        self._stepped_at, self._spent = time.perf_counter(), spent.seconds

    def take(self, step: int) -> None:
        now, ours = time.perf_counter(), spent.seconds
        values = np.array([now - self._stepped_at, ours - self._spent], dtype=np.float32)
        self._stepped_at, self._spent = now, ours
        self._metrics.emit(Snapshot(step, time.time(), values, LAYOUT), (), ())

    def close(self, state: RunState, linger: bool) -> None:
        self._metrics.close(state)
        if self._server:
            try:
                if linger:
                    self._server.linger(state, self._settings.linger_seconds)
            finally:
                self._server.stop()

    def _served(self, run: Run) -> Server | None:
        settings = self._settings
        local = os.environ.get("LOCAL_RANK", "")
        first = DEFAULT_PORT if settings.port is None else settings.port
        port = first + (int(local) if local.isdecimal() else run.rank)
        if settings.port == 0 or not is_free(settings.host, port):
            port = 0
        try:
            server = serve(settings, self._metrics.render, None, port)
        except (ValueError, OSError) as error:
            _log.warning("stabmon: rank %d serves nothing: %s", run.rank, error)
            return None
        if server:
            _log.info("stabmon: metrics of rank %d: %s/metrics", run.rank, server.url)
            if settings.log:
                folder = settings.folder or Path("stabmon-runs")
                with suppress(OSError):  # rank 0 may be about to make it
                    folder.mkdir(parents=True, exist_ok=True)
                server.announce(folder, run.name, run.rank)
        return server
