"""Maxima over a minute, step times and steps that are not finite, against counting by hand."""

from __future__ import annotations

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

from stabmon.catalog import PEAKS, STATISTICS
from stabmon.catalog.served import SOURCES
from stabmon.records import Layout, Site, Snapshot
from stabmon.sinks.prometheus import BATCH, Prometheus
from tests.sinks.test_prometheus import Clock, everything, samples, value
from tests.snapshots import NAN, RUN

LAYOUT = Layout(
    (
        ("loss", ""),
        ("step_seconds", ""),
        ("monitor_seconds", ""),
        ("skipped_steps", ""),
        ("total_grad_sq", ""),
        ("grad_sq", "h.0"),
        ("grad_sq", "h.1"),
        ("weight_sq", "h.0"),
        ("norm_gain", "h.0.ln"),
    ),
    (Site("h.0", 0, "block"), Site("h.1", 1, "block"), Site("h.0.ln", 0, "ln")),
)


def at(time: float, step: int = 1, **values: float) -> Snapshot:
    """What is not named was not read; a name stands for all its sites."""
    found = [values.get(statistic, NAN) for statistic, _ in LAYOUT.columns]
    return Snapshot(step, time, np.array(found, dtype=np.float32), LAYOUT)


def fed(*taken: Snapshot) -> Prometheus:
    prometheus = Prometheus(RUN, clock=Clock())
    for snapshot in taken:
        prometheus.emit(snapshot, [], [])
    return prometheus


def steps(count: int, spike: int, every: float = 0.1) -> list[Snapshot]:
    """A tenth of a second each, the loss 2, but 50 in one step."""
    return [at(1000 + every * i, i, loss=50.0 if i == spike else 2.0) for i in range(1, count + 1)]


@pytest.mark.parametrize(("after", "seen"), [(1, 50.0), (150, 50.0), (590, 50.0), (620, 2.0)])
def test_a_spike_of_one_step_shows_for_a_minute_and_no_longer(after: int, seen: float) -> None:
    prometheus = fed(*steps(30 + after, spike=30))
    assert value(prometheus, "stabmon_loss") == 2.0
    assert value(prometheus, "stabmon_loss_window_max") == seen


def test_scrapes_do_not_change_what_the_next_one_sees() -> None:
    scraped, not_scraped = Prometheus(RUN, clock=Clock()), fed(*steps(300, spike=100))
    for snapshot in steps(300, spike=100):
        scraped.emit(snapshot, [], [])
        if snapshot.step % 7 == 0:
            scraped.render()
    assert _but_rendering(scraped) == _but_rendering(not_scraped)


def _but_rendering(prometheus: Prometheus) -> dict[object, float]:
    return {key: found for key, found in samples(prometheus).items() if key[0] != "stabmon_render_seconds"}


def test_maxima_are_those_of_each_block_and_of_what_people_see() -> None:
    prometheus = fed(at(1000, total_grad_sq=16, grad_sq=9), at(1001, total_grad_sq=4), at(1002, total_grad_sq=1))
    assert value(prometheus, "stabmon_total_grad_norm_window_max") == 4
    assert value(prometheus, "stabmon_grad_norm_window_max", layer="001", block="block") == 3
    assert value(prometheus, "stabmon_update_ratio_window_max", layer="001", block="block") is None


def test_the_maxima_are_those_of_a_naive_window_over_random_steps() -> None:
    random = np.random.default_rng(0)
    times = 1000 + np.cumsum(random.exponential(0.3, size=900))
    losses = random.lognormal(size=900).astype(np.float32)
    prometheus = Prometheus(RUN, clock=Clock())
    for step, (time, loss) in enumerate(zip(times, losses, strict=True), 1):
        prometheus.emit(at(time, step, loss=loss), [], [])
        if step % 97 == 0:
            within = np.floor(times[:step]) >= np.floor(time) - 60
            assert value(prometheus, "stabmon_loss_window_max") == losses[:step][within].max()


def test_slow_steps_have_their_maximum_too() -> None:
    assert value(fed(at(1000, loss=3.0), at(2000, loss=2.5)), "stabmon_loss_window_max") == 2.5


def test_an_infinite_loss_is_the_maximum() -> None:
    assert value(fed(at(1000, loss=np.inf), at(1001, loss=2.5)), "stabmon_loss_window_max") == np.inf


def test_every_statistic_that_may_spike_has_its_maximum() -> None:
    prometheus, taken = Prometheus(RUN, clock=Clock()), everything()
    prometheus.emit(taken, [], [])
    served = samples(prometheus)
    for name in PEAKS:
        now = sorted(v for (found, _), v in served.items() if found == f"stabmon_{name}")
        highest = sorted(v for (found, _), v in served.items() if found == f"stabmon_{name}_window_max")
        assert now == highest == sorted(taken[name].tolist())


def test_step_times_fall_into_their_buckets() -> None:
    seconds = (0.005, 0.006, 0.3, 119.0, 500.0)
    prometheus = fed(*(at(1000, i, step_seconds=s) for i, s in enumerate(seconds, 1)), at(1001, 6))
    families = text_string_to_metric_families(prometheus.render().decode())
    family = next(f for f in families if f.name == "stabmon_step_duration_seconds")
    found = {s.labels.get("le", s.name): s.value for s in family.samples}
    # 0.005 is a little under its bound as a float32.
    assert [found[le] for le in ("0.005", "0.01", "0.25", "0.5", "60.0", "120.0", "+Inf")] == [1, 2, 2, 3, 3, 4, 5]
    assert found["stabmon_step_duration_seconds_count"] == 5
    assert found["stabmon_step_duration_seconds_sum"] == pytest.approx(sum(seconds))


def test_the_monitors_own_time_adds_up_over_all_batches() -> None:
    count = 3 * BATCH + 5
    prometheus = fed(*(at(1000, i, monitor_seconds=0.25) for i in range(count)))
    assert value(prometheus, "stabmon_monitor_seconds_total") == 0.25 * count
    assert value(prometheus, "stabmon_steps_total") == count


def nonfinite(*taken: Snapshot) -> dict[str, float | None]:
    prometheus = fed(*taken)
    return {s: value(prometheus, "stabmon_nonfinite_steps_total", source=s) for s in SOURCES}


def test_steps_that_are_not_finite_are_counted_by_where_they_are_not() -> None:
    assert nonfinite(
        at(1000, loss=np.inf, total_grad_sq=1.0),
        at(1001, loss=np.inf, total_grad_sq=np.inf, grad_sq=np.inf),
        at(1002, loss=2.0, weight_sq=np.inf),
        at(1003, loss=2.0),
    ) == {"loss": 2, "gradient": 1, "update": 1, "activation": 0}


def test_steps_that_a_loss_scaler_skipped_are_not_counted() -> None:
    broken = at(1000, total_grad_sq=np.inf, skipped_steps=1.0), at(1001, total_grad_sq=np.inf, skipped_steps=0.0)
    assert nonfinite(*broken)["gradient"] == 1


def test_the_sources_are_stored_statistics() -> None:
    assert all(not STATISTICS[name].of for names in SOURCES.values() for name in names)
