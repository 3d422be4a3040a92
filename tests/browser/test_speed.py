"""200 layers and 10,000 samples: how long it takes until something is seen, and how long the page is ever busy."""

import time
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import numpy as np
import pytest

from stabmon.records import Run, Snapshot
from stabmon.runlog import RunLogWriter
from stabmon.server.thread import Server
from tests.browser.conftest import TOKEN, Browser, address
from tests.browser.made import layout_of
from tests.browser.tracing import Trace

LAYERS, SAMPLES = 100, 10_000
"""Of two norms each: 200 sites for what is read at norms."""
LAYOUT = layout_of(LAYERS, "h.")
BUSY = 100.0
"""Milliseconds that no task may compute while rows stream in: from then on a person feels that the page hesitates."""
SLACK = 8.0
"""Until something is seen browser and server wait for a processor that others have: limits are those of an idle machine
times this."""
TOLD = "return performance.getEntriesByName('verdict shown')[0].startTime"
DRAWN = "return performance.getEntriesByName('charts drawn')[0].startTime"


class Long:
    """A run log that was long when it is opened, and grows."""

    def __init__(self, path: Path) -> None:
        self._now = 0.0
        self._writer = RunLogWriter(path, Run(path.stem, started=time.time()), clock=lambda: self._now)
        self._random = np.random.default_rng(0)
        self.step = 0
        self._values = self._random.lognormal(size=len(LAYOUT.columns)).astype(np.float32)

    def grow(self, count: int) -> None:
        for _ in range(count):
            self.step += 1
            values = self._values * np.float32(1 + 0.1 * self._random.random())
            self._writer.emit(Snapshot(self.step, time.time(), values, LAYOUT), (), ())
        self._now += 1
        self._writer.note(())
        self._writer.emit(Snapshot(self.step + 1, time.time(), self._values, LAYOUT), (), ())
        self.step += 1


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Long]]:
    folder = tmp_path_factory.mktemp("long")
    run = Long(folder / "long.stabmon")
    run.grow(SAMPLES)
    server = Server(lambda: b"", port=0, folder=folder, token=TOKEN)
    yield server, run
    server.stop()


def test_a_long_run_is_soon_seen_and_the_page_stays_free_while_it_streams(
    browser: Browser, long: tuple[Server, Long]
) -> None:
    server, run = long
    with urlopen(f"{server.url}/api/v1/run?run=long&token={TOKEN}", timeout=300) as answer:  # it has read the run then
        assert answer.status == 200
    browser.open(address(server, "long"))
    browser.until(lambda: {"loss", "norm_input_msq", "norm_gain"} <= set(browser.drawn()))
    told, drawn = browser.run(TOLD), browser.run(DRAWN)
    trace = Trace(browser.driver)
    for _ in range(3):
        browser.requested()
        run.grow(10)
        last = f"{run.step:,}"
        browser.until(lambda last=last: browser.tile("Step") == last)  # type: ignore[misc]
        browser.until(lambda: [url for url in browser.requested() if "/layers?" in url])
    browser.until(lambda: browser.run(DRAWN) > drawn)
    tasks = trace.tasks()
    numbers = f"verdict after {told:.0f} ms, charts after {drawn:.0f} ms, longest of {len(tasks)} tasks {tasks[:5]}"
    assert told < 1000 * SLACK, numbers
    assert drawn < 2000 * SLACK, numbers
    assert len(tasks) > 6, numbers  # two pictures and the loss, at least twice
    assert tasks[0].cpu < BUSY, numbers
