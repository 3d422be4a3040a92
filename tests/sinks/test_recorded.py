import os
from itertools import count
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from stabmon.records import Event
from stabmon.runlog import in_folder, read, tail
from stabmon.sinks.prometheus import Prometheus
from stabmon.sinks.recorded import RecordedMetrics
from tests.server.recorded import STARTED, Writing, alert, snapshot

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def samples(text: bytes) -> Samples:
    """(name, labels) -> value; a family told twice, or a series served twice, is refused."""
    found: Samples = {}
    families = list(text_string_to_metric_families(text.decode()))
    assert len({(family.name, family.type) for family in families}) == len(families)
    for family in families:
        for sample in family.samples:
            key = (sample.name, frozenset(sample.labels.items()))
            assert key not in found
            found[key] = sample.value
    return found


def value(text: bytes, name: str, run: str = "r1", **labels: str) -> float | None:
    return samples(text).get((name, frozenset({"run": run, "rank": "0", **labels}.items())))


def of(folder: Path) -> RecordedMetrics:
    """No two renderings are the same one: between them pass more than half a second, in looks at the clock."""
    looks = count()
    return RecordedMetrics(lambda: in_folder(folder), ["context_stall"], clock=lambda: next(looks) * 0.2)


def test_a_recorded_run_is_served_as_it_was_live(tmp_path: Path) -> None:
    writing = Writing(tmp_path / "r1.stabmon")
    live = Prometheus(writing.run, ["context_stall"])
    for step in range(1, 40):
        made = snapshot(step, loss=float("inf") if step == 33 else step, layers=step % 10 == 0)
        alerts = [alert(step)] if step == 20 else []
        events = [Event(step, 1.0, "part_failed", {"part": "tracker", "error": "OSError"})] if step == 30 else []
        writing._writer.emit(made, alerts, events)
        live.emit(made, alerts, events)
    writing.close("failed")
    live.close("failed")
    told = {name: found for name, found in samples(live.render()).items() if name[0] != "stabmon_render_seconds"}
    assert samples(of(tmp_path).render()) == told
    assert told["stabmon_nonfinite_steps_total", frozenset({("run", "r1"), ("rank", "0"), ("source", "loss")})] == 1
    assert told["stabmon_loss_window_max", frozenset({("run", "r1"), ("rank", "0")})] == float("inf")
    assert len(told) > 60


def test_a_run_that_goes_on_is_read_on_at_each_scrape(tmp_path: Path) -> None:
    writing, metrics = Writing(tmp_path / "r1.stabmon"), of(tmp_path)
    writing.step(3, loss=5.0)
    assert value(metrics.render(), "stabmon_loss") == 5.0
    writing.step(2, loss=4.0, alerts=[alert(5)])
    text = metrics.render()
    assert (value(text, "stabmon_loss"), value(text, "stabmon_steps_total")) == (4.0, 5)
    assert value(text, "stabmon_alerts_total", detector="context_stall", severity="critical") == 1
    assert value(text, "stabmon_run_state", state="running") == 1


def test_all_runs_are_in_one_text_with_each_family_once(tmp_path: Path) -> None:
    for name in ("r1", "r2"):
        Writing(tmp_path / f"{name}.stabmon", name=name).step(2)
    text = of(tmp_path).render()
    assert text.count(b"# TYPE stabmon_loss gauge\n") == 1
    assert [value(text, "stabmon_steps_total", run=name) for name in ("r1", "r2")] == [2, 2]
    assert value(text, "stabmon_alerts_total", run="r2", detector="context_stall", severity="warning") == 0


def test_of_two_runs_with_one_name_the_newer_is_served(tmp_path: Path) -> None:
    for folder, loss, unix in (("old", 1.0, 1000), ("new", 2.0, 2000)):
        writing = Writing(tmp_path / folder / "r1.stabmon")
        writing.step(1, loss=loss)
        writing.close()
        os.utime(writing.path, (unix, unix))
    assert value(of(tmp_path).render(), "stabmon_loss") == 2.0


def test_a_run_is_served_only_once_it_is_read_to_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tail, "POLL_ROWS", 10)
    Writing(tmp_path / "r1.stabmon").step(25)
    now = iter(range(1000))
    # Every look at the clock is a second later: each scrape has the time for no more than one poll.
    metrics = RecordedMetrics(lambda: in_folder(tmp_path), clock=lambda: next(now) * 0.3)
    texts = [metrics.render() for _ in range(3)]
    assert [value(text, "stabmon_steps_total") for text in texts] == [None, None, 25]


def test_runs_that_ended_take_no_time_from_one_that_is_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each scrape has the time to look into one run log."""
    for name in ("r2", "r3"):
        writing = Writing(tmp_path / f"{name}.stabmon", name=name)
        writing.step(2)
        writing.close()
    going = Writing(tmp_path / "r1.stabmon")
    going.step(2)
    now = iter(range(1000))
    metrics = RecordedMetrics(lambda: in_folder(tmp_path), clock=lambda: next(now) * 0.3)
    texts = [metrics.render() for _ in range(3)]
    assert [sum(value(text, "stabmon_step", run=f"r{i}") is not None for i in (1, 2, 3)) for text in texts] == [1, 2, 3]
    going.step(1)
    assert value(metrics.render(), "stabmon_step") == 3
    assert value(metrics.render(), "stabmon_step", run="r3") == 2


def test_counters_start_anew_with_a_resume_as_in_the_process_itself(tmp_path: Path) -> None:
    """Of one that falls to what is left, Prometheus takes all of that for new: alerts that nobody raised."""
    writing, metrics = Writing(tmp_path / "r1.stabmon"), of(tmp_path)
    writing.step(6, alerts=[alert(5, "warning"), alert(6, "critical")])
    writing.step(4, alerts=[alert(10, "warning")])
    writing.close("failed")
    assert value(metrics.render(), "stabmon_steps_total") == 10
    resumed = Writing(writing.path, resume_at=6)
    counted = ("stabmon_steps_total", "stabmon_monitor_seconds_total", "stabmon_step_duration_seconds_count")
    text = metrics.render()
    assert [value(text, name) for name in (*counted, "stabmon_step", "stabmon_loss")] == [0, 0, 0, 6, 2]
    resumed.step(1)
    text = metrics.render()
    assert [value(text, name) for name in (*counted, "stabmon_step")] == [1, pytest.approx(0.01), 1, 7]
    of_warnings = {"detector": "context_stall", "severity": "warning"}
    assert value(text, "stabmon_alerts_total", **of_warnings) == 0
    assert value(text, "stabmon_alert_active", detector="context_stall", severity="critical") == 1  # of before step 6
    resumed.step(1, alerts=[alert(8, "warning")])
    assert value(metrics.render(), "stabmon_alerts_total", **of_warnings) == 1
    assert samples(of(tmp_path).render()).keys() == samples(metrics.render()).keys()


def test_what_is_no_run_log_costs_the_others_nothing(tmp_path: Path) -> None:
    (tmp_path / "text.stabmon").write_text("x" * 4096, encoding="utf-8")
    Writing(tmp_path / "r1.stabmon").step(1)
    text = of(tmp_path).render()
    assert value(text, "stabmon_last_step_timestamp_seconds") == STARTED + 1


def test_the_recorded_steps_are_those_of_the_log(tmp_path: Path) -> None:
    writing = Writing(tmp_path / "r1.stabmon")
    writing.step(5)
    assert value(of(tmp_path).render(), "stabmon_steps_total") == sum(1 for _ in read(writing.path).feeds())
