"""Grafana's transformations in Python against what Grafana's own code (@grafana/data 13.2) made of the same."""

from __future__ import annotations

from typing import Any

from tests.dashboards.frames import Frame, transformed
from tests.dashboards.reading import panels


def after(uid: str, title: str, frames: list[Frame], kind: str = "") -> list[Frame]:
    found: dict[str, Any] = next(p for p in panels(uid) if p["title"] == title and p["type"].startswith(kind))
    return transformed(frames, found["transformations"])


def test_a_trend_has_one_row_for_each_step_its_last() -> None:
    frames: list[Frame] = [
        {"Time": [1, 2, 3, 4], "step": [10, 10, 12, 15]},
        {"Time": [1, 2, 3, 4], "loss": [5, 4, 3, 2]},
    ]
    assert after("stabmon-run", "Loss over the step", frames) == [{"step": [10, 12, 15], "loss": [4, 3, 2]}]


def test_the_runs_are_rows_also_where_a_query_knows_nothing_of_them() -> None:
    frames: list[Frame] = [
        {"Time": [9, 9], "run": ["r1", "r2"], "state": ["running", "failed"], "Value #A": [1, 1]},
        {"Time": [9, 9], "run": ["r1", "r2"], "Value #B": [7, 8]},
        {"Time": [9], "run": ["r1"], "Value #C": [2.5]},
        {"Time": [], "Value #E": []},
    ]
    (found,) = after("stabmon-runs", "Runs", frames, "table")
    assert found == {
        "Run": ["r1", "r2"],
        "State": ["running", "failed"],
        "Step": [7, 8],
        "Loss": [2.5, None],
        "Since last step": [None, None],
    }


def test_alerts_have_their_last_step_beside_them() -> None:
    frames: list[Frame] = [
        {"Time": [9], "detector": ["spike"], "Value #A": [2]},
        {"Time": [9, 9], "detector": ["flat", "spike"], "Value #B": [4, 7]},
    ]
    found = after("stabmon-run", "Alerts raised in this time range", frames, "table")
    assert found == [{"detector": ["spike"], "alerts": [2], "last at step": [7]}]


def test_bars_are_in_the_order_of_layers() -> None:
    frames: list[Frame] = [{"Time": [9, 9], "layer": ["001", "000"], "Value": [2, 3]}]
    assert after("stabmon-run", "gradient norm", frames) == [{"layer": ["000", "001"], "gradient norm": [3, 2]}]


def test_each_run_of_a_comparison_is_a_frame_of_step_and_value() -> None:
    """The last of these steps, partitionByValues, is not in @grafana/data: read from its source."""
    frames: list[Frame] = [
        {"Time": [1, 2, 1, 2], "run": ["a", "a", "b", "b"], "Value #A": [10, 20, 11, 21]},
        {"Time": [1, 2, 1, 2], "run": ["a", "a", "b", "b"], "Value #B": [5, 4, 3, 2]},
    ]
    assert after("stabmon-compare", "Loss", frames, "xychart") == [
        {"step": [10, 20], "a loss": [5, 4]},
        {"step": [11, 21], "b loss": [3, 2]},
    ]
