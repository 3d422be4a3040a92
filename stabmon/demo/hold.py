"""After the demo's training: its page and metrics stay at their address."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from stabmon.detectors import default_detectors
from stabmon.server.thread import Server
from stabmon.settings import Settings
from stabmon.sinks.recorded import RecordedMetrics


@contextmanager
def served_again(run_log: Path, page_url: str) -> Iterator[None]:
    """Serves a run that has ended where it was served while it trained, for a page that is open there."""
    address = urlsplit(page_url)
    (token,) = parse_qs(address.query)["token"]
    metrics = RecordedMetrics(lambda: {run_log.stem: run_log}, [detector.name for detector in default_detectors()])
    server = Server(metrics.render, Settings.of().host, address.port, run_log=run_log, token=token)
    try:
        yield
    finally:
        server.stop()
