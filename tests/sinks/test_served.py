"""What /metrics tells beside statistics: the cap on series, labels of users, alerts' steps, messages."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from stabmon.catalog import PEAKS, STATISTICS
from stabmon.records import Alert
from stabmon.sinks.delivery import Delivering, Delivery, Refused, Why
from stabmon.sinks.notify import Notify
from stabmon.sinks.prometheus import Prometheus
from tests.sinks.test_prometheus import Clock, everything, samples, sink, value
from tests.snapshots import RUN, alert, snapshot


def test_detail_per_layer_beyond_the_cap_is_left_out_counted_and_told_once(caplog: pytest.LogCaptureFixture) -> None:
    whole, small = Prometheus(RUN, clock=Clock()), Prometheus(RUN, max_series=100, clock=Clock())
    for prometheus in (whole, small):
        prometheus.emit(everything(), [], [])
        prometheus.emit(everything(), [], [])
    with caplog.at_level(logging.WARNING):
        left, dropped = samples(small), value(small, "stabmon_series_dropped")
        small.render()
    assert dropped == len(samples(whole)) - len(left) > 0
    per_layer = [key for key in left if "layer" in dict(key[1])]
    assert len(per_layer) <= 100
    assert {name for name, _ in per_layer} >= {"stabmon_layer_info", *(f"stabmon_{n}_window_max" for n in PEAKS[2:])}
    for row in STATISTICS.values():
        if row.exported and row.scope == "model":
            assert value(small, f"stabmon_{row.name}") == value(whole, f"stabmon_{row.name}")
    assert [r.getMessage()[:35] for r in caplog.records] == [f"stabmon: /metrics leaves out {dropped:.0f} seri"[:35]]


def test_without_need_nothing_is_left_out() -> None:
    prometheus = sink()
    prometheus.emit(everything(), [], [])
    assert value(prometheus, "stabmon_series_dropped") == 0


def test_labels_of_users_are_on_run_info() -> None:
    prometheus = sink(replace(RUN, labels={"team": 'n"lp', "owner": "ä"}))
    (labels,) = [dict(labels) for name, labels in samples(prometheus) if name == "stabmon_run_info"]
    assert (labels["team"], labels["owner"], labels["model"]) == ('n"lp', "ä", "Tiny")


def test_a_rendering_tells_its_own_time() -> None:
    prometheus = sink()
    assert value(prometheus, "stabmon_render_seconds") == 1.0  # the clock of these tests goes on a second a look


def test_an_alert_tells_at_which_step_it_came_and_since_when_while_it_is_open() -> None:
    prometheus = sink()

    def seen() -> list[float | None]:
        return [value(prometheus, f"stabmon_alert_{what}_step", detector="stall") for what in ("last", "since")]

    assert seen() == [None, None]
    prometheus.emit(snapshot(7), [alert(7)], [])
    assert seen() == [7, 5]
    prometheus.emit(snapshot(9), [alert(9, state="cleared")], [])
    assert seen() == [7, None]


def test_an_alert_that_was_open_before_a_resume_is_open_and_not_counted_again() -> None:
    prometheus = sink()
    prometheus.recall([alert(3), alert(5, detector="other"), alert(6, state="cleared", detector="other")])
    assert value(prometheus, "stabmon_alert_active", detector="stall", severity="warning") == 1
    assert value(prometheus, "stabmon_alert_active", detector="other", severity="warning") == 0
    assert value(prometheus, "stabmon_alerts_total", detector="stall", severity="warning") == 0


class Pager:
    """Takes every alert, or none."""

    def __init__(self, fails: bool) -> None:
        self.fails = fails

    def send(self, told: Alert) -> None:
        if self.fails:
            raise OSError("no")


def test_messages_are_counted_by_what_became_of_them(tmp_path: Path) -> None:
    working, broken = Notify(Pager(fails=False)), Notify(Pager(fails=True))
    assert isinstance(working, Delivering)
    broken.delivery.name = "broken"
    prometheus = sink()
    prometheus.expect([], [working.delivery, broken.delivery])

    def seen(channel: str) -> list[float | None]:
        outcomes = ("sent", "failed", "dropped", "held")
        return [value(prometheus, "stabmon_notifications_total", channel=channel, outcome=o) for o in outcomes]

    assert seen("notify_pager") == seen("broken") == [0, 0, 0, 0]
    for notify in (working, broken):
        # The second warning of a day waits for a digest, which goes out at the end.
        notify.emit(snapshot(1), [alert(1)], [])
        notify.emit(snapshot(2), [alert(2)], [])
        notify.close("finished")
    assert (seen("notify_pager"), seen("broken")) == ([2, 0, 0, 1], [0, 2, 0, 1])


def test_two_channels_of_one_name_are_one_series() -> None:
    def refuse(alerts: Sequence[Alert], why: Why) -> None:
        raise Refused("no")

    prometheus, deliveries = sink(), [Delivery("pager", refuse, None) for _ in range(2)]
    prometheus.expect([], deliveries)
    for delivery in deliveries:
        delivery.take([alert(1, "critical")])
        delivery.close()
    assert value(prometheus, "stabmon_notifications_total", channel="pager", outcome="failed") == 2


def test_a_value_that_is_not_finite_costs_no_scrape() -> None:
    prometheus = sink()
    prometheus.emit(snapshot(1, math.inf, math.inf, math.inf, math.inf, math.inf, math.inf), [], [])
    assert value(prometheus, "stabmon_nonfinite_steps_total", source="gradient") == 1
