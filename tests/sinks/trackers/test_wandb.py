from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import wandb

from stabmon.sinks.trackers.choice import trackers_of
from tests.snapshots import alert
from tests.wandb_file import alerts, records, rows


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """An active offline run."""
    monkeypatch.setenv("WANDB_SILENT", "true")
    return wandb.init(project="test", dir=tmp_path, mode="offline")


def picked(folder: Path, *keys: str) -> list[tuple[Any, ...]]:
    return [tuple(row.get(key) for key in keys) for row in rows(folder)]


@pytest.mark.parametrize(
    "given", [lambda run: run, lambda run: "wandb", lambda run: wandb], ids=["run", "name", "module"]
)
def test_rows_have_their_own_axis_and_an_alert_is_an_alert(
    tmp_path: Path, run: Any, given: Callable[[Any], Any]
) -> None:
    (tracker,) = trackers_of(given(run))
    for step in (10, 20, 30):
        tracker.log({"stabmon/context_share": step / 100}, step)
    tracker.tell(alert(30, "critical"))
    tracker.tell(alert(40, state="cleared"))
    run.finish()
    assert picked(tmp_path, "stabmon/step", "stabmon/context_share") == [(10, 0.1), (20, 0.2), (30, 0.3)]
    assert alerts(tmp_path) == [("ERROR", "stabmon: stall critical"), ("INFO", "stabmon: stall cleared")]
    (axis,) = [r.metric for r in records(tmp_path) if r.WhichOneof("record_type") == "metric" and r.metric.glob_name]
    assert (axis.glob_name, axis.step_metric) == ("stabmon/*", "stabmon/step")


def test_rows_that_the_loop_numbers_itself_keep_their_numbers_and_values(tmp_path: Path, run: Any) -> None:
    (tracker,) = trackers_of(run)
    for step in range(1, 31):
        run.log({"loss": float(step)}, step=step)
        if step % 10 == 0:
            tracker.log({"stabmon/context_share": step / 100}, step)
            run.log({"accuracy": float(step)}, step=step)
    run.finish()
    assert picked(tmp_path, "_step", "loss") == [(step, step) for step in range(1, 31)]
    found = picked(tmp_path, "_step", "accuracy", "stabmon/step", "stabmon/context_share")
    assert [row for row in found if row[1]] == [(10, 10, 10, 0.1), (20, 20, 20, 0.2), (30, 30, 30, 0.3)]


def test_rows_that_wandb_numbers_are_not_pushed_on(tmp_path: Path, run: Any) -> None:
    (tracker,) = trackers_of(run)
    for step in range(1, 31):
        if step % 10 == 0:
            tracker.log({"stabmon/context_share": step / 100}, step)
        run.log({"loss": float(step)})
    run.finish()
    assert picked(tmp_path, "_step", "loss") == [(step - 1, step) for step in range(1, 31)]
    found = picked(tmp_path, "stabmon/step", "stabmon/context_share")
    assert [row for row in found if row[0]] == [(10, 0.1), (20, 0.2), (30, 0.3)]
