from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from stabmon.catalog import STATISTICS
from stabmon.records import Alert, Layout
from stabmon.sinks.tracker import HEADLINE, TrackerSink, headline
from stabmon.sinks.trackers.choice import trackers_of
from tests.snapshots import SITES, alert, snapshot

COLUMNS = (
    ("context_share", ""),
    ("bigram_loss", ""),
    ("intended_update_sq", "h.0"),
    ("intended_update_sq", "h.1"),
    ("weight_sq", "h.0"),
    ("weight_sq", "h.1"),
)
LAYOUT = Layout(COLUMNS, SITES)


class Kept:
    name = "kept"

    def __init__(self) -> None:
        self.rows: list[tuple[int, dict[str, float]]] = []
        self.told: list[Alert] = []
        self.flushed = 0

    def log(self, row: Mapping[str, float], step: int) -> None:
        self.rows.append((step, dict(row)))

    def tell(self, alert: Alert) -> None:
        self.told.append(alert)

    def flush(self) -> None:
        self.flushed += 1


def test_the_headline_is_of_the_catalog_and_has_three_to_eight_scalars() -> None:
    assert set(HEADLINE) <= set(STATISTICS)
    assert 3 <= len(HEADLINE) <= 8


def test_a_row_has_what_was_read_and_of_layers_the_largest() -> None:
    row = headline(snapshot(10, 0.25, np.nan, 4.0, 1.0, 16.0, 16.0, layout=LAYOUT))
    assert row == {"stabmon/context_share": 0.25, "stabmon/update_ratio_max": 0.5}


def test_rows_go_at_the_two_clocks_and_not_each_step() -> None:
    kept = Kept()
    sink = TrackerSink(kept, every=10, probe_every=25)
    for step in range(1, 61):
        sink.emit(snapshot(step, step / 100, layout=LAYOUT), [], [])
    assert [step for step, _ in kept.rows] == [10, 20, 25, 30, 40, 50, 60]
    assert all(row == {"stabmon/context_share": pytest.approx(step / 100)} for step, row in kept.rows)


def test_an_alert_goes_at_its_step_and_its_level_stays_until_it_clears() -> None:
    kept = Kept()
    sink = TrackerSink(kept, every=10, probe_every=10)
    told = {3: alert(3), 5: alert(5, "critical"), 11: alert(11, state="cleared")}
    for step in range(1, 21):
        sink.emit(snapshot(step, layout=LAYOUT), [told[step]] if step in told else [], [])
    assert kept.rows == [(step, {"stabmon/alert/stall": level}) for step, level in zip(
        (3, 5, 10, 11, 20), (2.0, 3.0, 3.0, 0.0, 0.0), strict=True
    )]  # fmt: skip
    assert kept.told == list(told.values())
    sink.close("finished")
    assert kept.flushed == 1


def test_an_object_with_log_and_a_function_get_the_row_and_the_step() -> None:
    got: list[Any] = []
    logger = SimpleNamespace(log=lambda row, step: got.append((row, step)))
    for tracker in trackers_of([logger, lambda row, step: got.append((row, step))]):
        tracker.log({"a": 1.0}, 7)
    assert got == [({"a": 1.0}, 7)] * 2


def test_a_logger_that_is_not_known_gets_log_metrics() -> None:
    got: list[Any] = []
    (tracker,) = trackers_of(SimpleNamespace(log_metrics=lambda row, step: got.append((row, step)), experiment=None))
    tracker.log({"a": 1.0}, 7)
    assert got == [({"a": 1.0}, 7)]


@pytest.mark.parametrize("nothing", [None, "none", []])
def test_none_is_no_tracker(nothing: Any) -> None:
    assert trackers_of(nothing) == []


@pytest.mark.parametrize("wrong", ["wandbb", 3, object, [3], {"log": 1}])
def test_an_unknown_tracker_is_refused_and_told_what_is_allowed(wrong: Any) -> None:
    with pytest.raises(
        ValueError, match=r"log_to=.* is not a tracker\. Allowed: a W&B run, .* function of \(row, step"
    ):
        trackers_of(wrong)


@pytest.mark.parametrize(("name", "call"), [("wandb", r"wandb\.init\(\)"), ("mlflow", r"mlflow\.start_run\(\)")])
def test_without_an_active_run_the_name_is_refused(name: str, call: str) -> None:
    with pytest.raises(ValueError, match=rf"log_to='{name}': there is no active run; call {call} first"):
        trackers_of(name)
