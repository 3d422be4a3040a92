"""The quick rendering against the client library's own, byte for byte."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily

from stabmon.records import Layout, Run, Site, Snapshot
from stabmon.sinks.exposition import Frame, text_of
from stabmon.sinks.prometheus import Prometheus
from tests.sinks.test_prometheus import everything
from tests.snapshots import NAN, RUN, alert, snapshot


def reference(prometheus: Prometheus) -> bytes:
    registry = CollectorRegistry()
    registry.register(prometheus)
    return generate_latest(registry)


def rendered(prometheus: Prometheus) -> Iterator[tuple[bytes, bytes]]:
    """(rendering, reference) after each of several steps, with values of all kinds and two layouts."""
    taken = everything()
    random = np.random.default_rng(0)
    yield prometheus.render(), reference(prometheus)
    for step in range(1, 6):
        values = (10.0 ** random.uniform(-38, 38, taken.values.size)).astype(np.float32)
        values[random.integers(values.size, size=step)] = [NAN, np.inf, -np.inf, 0.0, -1.5][step - 1]
        prometheus.emit(replace(taken, step=step, values=values), [alert(step)], [])
        yield prometheus.render(), reference(prometheus)
    prometheus.emit(snapshot(6, 3.5, NAN, 1e6, 2.0), [], [])
    yield prometheus.render(), reference(prometheus)
    prometheus.close("finished")
    yield prometheus.render(), reference(prometheus)


@pytest.mark.parametrize("run", [RUN, replace(RUN, name='a"b\\c\nd é', rank=3)])
def test_a_rendering_is_the_client_librarys_byte_for_byte(run: Run) -> None:
    ticks = iter(range(100))
    pairs = list(rendered(Prometheus(run, detectors=["stall"], parts=["run_log"], clock=lambda: float(next(ticks)))))
    assert len(pairs) == 8
    for got, wanted in pairs:
        assert got == wanted


def test_module_names_with_quotes_and_line_breaks_are_kept_apart() -> None:
    names = ('a"b', "a\\b", "a\nb", "a b 1.0")
    layout = Layout(tuple(("norm_gain", n) for n in names), tuple(Site(n, i, "norm") for i, n in enumerate(names)))
    prometheus = Prometheus(RUN)
    prometheus.emit(Snapshot(1, 1.0, np.arange(4, dtype=np.float32), layout), [], [])
    assert prometheus.render() == reference(prometheus)


def test_a_frame_leaves_out_what_was_not_read() -> None:
    family = GaugeMetricFamily("g", "Help.", labels=("l",))
    for label in "abc":
        family.add_metric((label,), 0.0)
    frame = Frame([family, family])
    head = "# HELP g Help.\n# TYPE g gauge\n"
    assert frame.fill([[1.5, NAN, 1e6], []]).decode() == f'{head}g{{l="a"}} 1.5\ng{{l="c"}} 1e+06\n{head}'
    assert text_of([family]).decode() == head + "".join(f'g{{l="{label}"}} 0.0\n' for label in "abc")
