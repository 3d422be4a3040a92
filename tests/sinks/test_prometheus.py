import math
import os
import shutil
import subprocess
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

from stabmon.catalog import STATISTICS
from stabmon.records import Event, Layout, Run, Site, Snapshot
from stabmon.sinks.exposition import Shared
from stabmon.sinks.prometheus import Prometheus
from tests.snapshots import NAN, RUN, alert, snapshot

ME = {"run": "r1", "rank": "0"}
ROOT = Path(__file__).parent.parent.parent


class Clock:
    now = 0.0

    def __call__(self) -> float:
        self.now += 1.0  # every look is a second later: nothing is cached
        return self.now


def sink(run: Run = RUN) -> Prometheus:
    return Prometheus(run, detectors=["stall"], parts=["run_log"], clock=Clock())


def samples(prometheus: Prometheus) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """(name, labels) -> value, as Prometheus' own parser reads it; a series served twice is refused."""
    found: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}
    for family in text_string_to_metric_families(prometheus.render().decode()):
        for sample in family.samples:
            key = (sample.name, frozenset(sample.labels.items()))
            assert key not in found
            found[key] = sample.value
    return found


def value(prometheus: Prometheus, name: str, **labels: str) -> float | None:
    return samples(prometheus).get((name, frozenset({**ME, **labels}.items())))


def everything() -> Snapshot:
    """Every statistic that is stored in the catalog, at two layers."""
    sites = tuple(Site(f"h.{n}.{scope}", n, scope) for n in (0, 11) for scope in ("norm", "block", "sublayer"))
    columns = []
    for row in STATISTICS.values():
        if not row.of:
            columns += [(row.name, "" if row.scope == "model" else s.name) for s in sites if s.role in (row.scope,)]
            columns += [(row.name, "")] * (row.scope == "model")
    layout = Layout(tuple(columns), sites)
    return Snapshot(7, 1007.5, np.arange(1, len(columns) + 1, dtype=np.float32), layout)


def test_every_exported_statistic_of_the_catalog_is_served_with_its_value() -> None:
    prometheus, taken = sink(), everything()
    prometheus.emit(taken, [], [])
    served = samples(prometheus)
    for row in STATISTICS.values():
        got = {labels: v for (name, labels), v in served.items() if name == f"stabmon_{row.name}"}
        if not row.exported:
            assert got == {}
            continue
        places: list[dict[str, str]] = [{}]
        if row.scope != "model":
            places = [{"layer": layer, row.scope: row.scope} for layer in ("000", "011")]
        wanted = {
            frozenset({**ME, **place}.items()): v for place, v in zip(places, taken[row.name].tolist(), strict=True)
        }
        assert got == wanted


def test_the_counters_stand_at_zero_before_the_first_step() -> None:
    zeros = {(name, labels) for (name, labels), v in samples(sink()).items() if name.endswith("_total") and v == 0}
    alerts = {
        ("stabmon_alerts_total", frozenset({**ME, "detector": "stall", "severity": s}.items()))
        for s in ("info", "warning", "critical")
    }
    assert zeros == alerts | {
        ("stabmon_steps_total", frozenset(ME.items())),
        ("stabmon_dropped_rows_total", frozenset(ME.items())),
        ("stabmon_part_failures_total", frozenset({**ME, "part": "run_log"}.items())),
        ("stabmon_monitor_seconds_total", frozenset(ME.items())),
    } | {
        ("stabmon_nonfinite_steps_total", frozenset({**ME, "source": source}.items()))
        for source in ("loss", "activation", "gradient", "update")
    }


def test_a_gauge_keeps_the_value_last_read_and_one_never_read_is_absent() -> None:
    prometheus = sink()
    prometheus.emit(snapshot(1, 3.5, 2.0), [], [])
    prometheus.emit(snapshot(2, 3.25), [], [])
    assert value(prometheus, "stabmon_loss") == 3.25
    assert value(prometheus, "stabmon_norm_input_msq", layer="000", norm="ln") == 2.0
    assert value(prometheus, "stabmon_norm_input_msq", layer="001", norm="ln") is None
    assert value(prometheus, "stabmon_step") == 2
    assert value(prometheus, "stabmon_steps_total") == 2
    assert value(prometheus, "stabmon_last_step_timestamp_seconds") == 1002


def test_the_sink_does_not_share_the_array_it_was_given() -> None:
    prometheus, taken = sink(), snapshot(1, 3.5)
    prometheus.emit(taken, [], [])
    taken.values[:] = 0
    assert value(prometheus, "stabmon_loss") == 3.5


def test_infinity_is_served_as_such_and_a_quotient_of_two_is_left_out() -> None:
    prometheus, taken = sink(), everything()
    values = taken.values.copy()
    values[
        [taken.layout.slots(s)[0] for s in ("loss", "total_grad_sq", "update_sq", "intended_update_sq", "weight_sq")]
    ] = np.inf
    prometheus.emit(replace(taken, values=values), [], [])
    assert value(prometheus, "stabmon_loss") == math.inf
    assert b'stabmon_total_grad_norm{rank="0",run="r1"} +Inf' in prometheus.render()
    assert value(prometheus, "stabmon_update_norm", layer="000", block="block") == math.inf
    assert value(prometheus, "stabmon_update_ratio", layer="000", block="block") is None
    assert value(prometheus, "stabmon_update_ratio", layer="011", block="block") is not None


def test_layers_are_numbered_in_three_digits_and_named_once() -> None:
    prometheus = sink()
    prometheus.emit(snapshot(1), [], [])
    infos = [dict(labels) for (name, labels) in samples(prometheus) if name == "stabmon_layer_info"]
    assert [(i["layer"], i["role"], i["module"]) for i in infos] == [
        ("000", "block", "h.0"),
        ("000", "ln", "h.0.ln"),
        ("001", "block", "h.1"),
        ("001", "ln", "h.1.ln"),
        ("", "final", "norm"),
    ]


def test_sites_alike_in_layer_and_role_still_make_different_series() -> None:
    names = ("q_norm", "k_norm", "v_norm")
    layout = Layout(tuple(("norm_gain", n) for n in names), tuple(Site(n, 0, "norm") for n in names))
    prometheus = sink()
    prometheus.emit(snapshot(1, 1.0, 2.0, 3.0, layout=layout), [], [])
    gains = [value(prometheus, "stabmon_norm_gain", layer="000", norm=n) for n in ("norm", "norm_2", "norm_3")]
    assert gains == [1.0, 2.0, 3.0]


def test_a_changed_model_forgets_the_old_ones_values() -> None:
    prometheus = sink()
    prometheus.emit(snapshot(1, 3.5), [], [])
    prometheus.emit(snapshot(2, 4.0, layout=Layout((("grad_sq", "a"),), (Site("a", 0, "block"),))), [], [])
    assert value(prometheus, "stabmon_loss") is None
    assert value(prometheus, "stabmon_grad_norm", layer="000", block="block") == 2.0


def test_alerts_are_counted_and_active_until_cleared() -> None:
    prometheus = sink()

    def seen() -> list[float | None]:
        return [
            value(prometheus, f"stabmon_{name}", detector="stall", severity=severity)
            for name in ("alerts_total", "alert_active")
            for severity in ("warning", "critical")
        ]

    prometheus.emit(snapshot(1), [alert(1, "warning")], [])
    assert seen() == [1, 0, 1, 0]
    prometheus.emit(snapshot(2), [alert(2, "critical")], [])
    assert seen() == [1, 1, 0, 1]
    prometheus.emit(snapshot(3), [alert(3, "critical", state="cleared")], [])
    assert seen() == [1, 1, 0, 0]


def test_failed_parts_and_dropped_rows_are_counted() -> None:
    prometheus = sink()
    failed = Event(1, 1.0, "part_failed", {"part": "slack", "error": "OSError"})
    prometheus.emit(snapshot(1), [], [failed, Event(1, 1.0, "dropped_rows", {"count": 3}), Event(1, 1.0, "resume", {})])
    prometheus.emit(snapshot(2), [], [failed, Event(2, 1.0, "dropped_rows", {"count": 2})])
    assert value(prometheus, "stabmon_part_failures_total", part="slack") == 2
    assert value(prometheus, "stabmon_part_failures_total", part="run_log") == 0
    assert value(prometheus, "stabmon_dropped_rows_total") == 5


def test_exactly_one_run_state_is_one() -> None:
    prometheus = sink()
    states = ("running", "finished", "failed", "stopped", "preempted")
    assert [value(prometheus, "stabmon_run_state", state=s) for s in states] == [1, 0, 0, 0, 0]
    prometheus.close("preempted")
    assert [value(prometheus, "stabmon_run_state", state=s) for s in states] == [0, 0, 0, 0, 1]


def test_label_values_are_escaped() -> None:
    run = replace(RUN, name='a"b\\c', rank=3)
    labels = frozenset({"run": 'a"b\\c', "rank": "3"}.items())
    assert samples(sink(run))["stabmon_steps_total", labels] == 0


def test_a_rendering_is_half_a_second_old_at_most() -> None:
    now = 10.0
    prometheus = Prometheus(RUN, clock=lambda: now)
    first = prometheus.render()
    prometheus.emit(snapshot(1), [], [])
    now = 10.49
    assert prometheus.render() is first
    now = 10.5
    assert b'stabmon_steps_total{rank="0",run="r1"} 1.0' in prometheus.render()


def test_the_final_state_does_not_wait_for_the_cache() -> None:
    prometheus = Prometheus(RUN, clock=lambda: 10.0)
    prometheus.render()
    prometheus.close("failed")
    assert b'state="failed"} 1.0' in prometheus.render()


def test_twenty_callers_at_once_cost_one_rendering() -> None:
    renderings = []
    gate = threading.Event()

    def slow() -> bytes:
        renderings.append(1)
        gate.wait(10)
        return b"text"

    shared = Shared(slow, lambda: 10.0)
    got: list[bytes] = []
    callers = [threading.Thread(target=lambda: got.append(shared.get())) for _ in range(20)]
    for caller in callers:
        caller.start()
    gate.set()
    for caller in callers:
        caller.join()
    assert (len(renderings), got) == (1, [b"text"] * 20)


def test_promtool_finds_nothing_to_say() -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        assert os.environ.get("CI") != "true", "promtool is missing: install the Debian package prometheus"
        pytest.skip("promtool is not installed (Debian package prometheus)")
    prometheus = sink()
    for taken in (None, everything(), snapshot(8, math.inf, NAN, 2.0)):
        if taken is not None:
            prometheus.emit(taken, [alert(taken.step)], [])
        text = prometheus.render()
        checked = subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True, check=False)
        assert (checked.returncode, checked.stdout + checked.stderr) == (0, b"")
    bad = subprocess.run([promtool, "check", "metrics"], input=b"stabmonLoss 1\n", capture_output=True, check=False)
    assert bad.returncode == 3


@pytest.mark.parametrize("file", ["prometheus", "layers", "readings", "peaks", "tally", "families", "recorded"])
def test_statistic_names_are_spelled_in_the_catalog_alone(file: str) -> None:
    text = (ROOT / "stabmon" / "sinks" / f"{file}.py").read_text(encoding="utf-8")
    assert [name for name in STATISTICS if f'"{name}"' in text or f"stabmon_{name}" in text] == []
