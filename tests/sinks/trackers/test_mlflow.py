from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import mlflow
import pytest

from stabmon.sinks.trackers.choice import trackers_of
from tests.snapshots import alert


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """An active run in a file store."""
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    before = mlflow.get_tracking_uri()
    mlflow.set_tracking_uri((tmp_path / "store").as_uri())
    with mlflow.start_run() as active:
        yield active
    mlflow.set_tracking_uri(before)


@pytest.mark.parametrize(
    "given",
    [lambda run: "mlflow", lambda run: mlflow, lambda run: (mlflow.MlflowClient(), run)],
    ids=["name", "module", "client and run"],
)
def test_metrics_and_alerts_are_in_the_store_at_their_steps(run: Any, given: Callable[[Any], Any]) -> None:
    (tracker,) = trackers_of(given(run))
    for step in (10, 20):
        tracker.log({"stabmon/context_share": step / 100, "stabmon/trust_ratio": 1.0}, step)
    tracker.tell(alert(20))
    mlflow.end_run()
    tracker.log({"stabmon/context_share": 0.3}, 30)
    mlflow.flush_async_logging()
    client = mlflow.MlflowClient()
    found = sorted((m.step, m.value) for m in client.get_metric_history(run.info.run_id, "stabmon/context_share"))
    assert found == [(10, 0.1), (20, 0.2), (30, 0.3)], "the last one after the run has ended, into the same run"
    assert client.get_run(run.info.run_id).data.tags["stabmon.alert.stall"] == "r1 is not learning. Restart"
    assert len(client.search_runs([run.info.experiment_id])) == 1
