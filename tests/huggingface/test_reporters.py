from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import mlflow
import pytest
import wandb
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from transformers import TrainerCallback
from transformers.integrations import integration_utils

from stabmon.huggingface import StabilityCallback
from stabmon.runlog import read
from tests.test_huggingface import callback, model, trainer
from tests.wandb_file import rows

STEPS = 12
CLOCKS = {"every": 4, "probe_every": 4, "dense_steps": 0}
Curve = dict[int, float]


class Rows(TrainerCallback):
    """A reporter that keeps what it is given."""

    kept: list[tuple[int, dict[str, Any]]]

    def __init__(self) -> None:
        self.kept = []

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any], **kwargs: Any) -> None:
        self.kept.append((state.global_step, dict(logs)))


def recorded(watcher: StabilityCallback, name: str) -> Curve:
    """What the run log says, at the steps that a tracker gets."""
    assert watcher.monitor is not None
    assert watcher.monitor.run_log is not None
    snapshots = [snapshot for snapshot, _ in read(watcher.monitor.run_log).feeds()]
    return {s.step: s.scalar(name) for s in snapshots if s.step % CLOCKS["every"] == 0}


def test_every_reporter_gets_the_headline_at_the_right_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "WANDB_MODE": "offline",
        "WANDB_DIR": str(tmp_path),
        "WANDB_SILENT": "true",
        "MLFLOW_ALLOW_FILE_STORE": "true",
        "MLFLOW_TRACKING_URI": (tmp_path / "store").as_uri(),
        "TENSORBOARD_LOGGING_DIR": str(tmp_path / "events"),
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setitem(integration_utils.INTEGRATION_TO_CALLBACK, "rows", Rows)
    watcher = callback(tmp_path / "runs", **CLOCKS)
    running = trainer(
        model(), tmp_path, watcher, max_steps=STEPS, logging_steps=6,
        report_to=["wandb", "tensorboard", "mlflow", "rows"], run_name="test",
    )  # fmt: skip
    running.train()
    assert wandb.run is not None
    wandb.run.finish()
    mlflow.flush_async_logging()
    (kept,) = [c.kept for c in running.callback_handler.callbacks if isinstance(c, Rows)]
    events = EventAccumulator(str(tmp_path / "events"))
    events.Reload()
    client = mlflow.MlflowClient((tmp_path / "store").as_uri())
    (run,) = client.search_runs(["0"])
    for name in ("context_share", "trust_ratio", "bigram_loss"):
        truth, key = recorded(watcher, name), f"stabmon/{name}"
        assert sorted(truth) == [4, 8, 12]
        assert all(math.isfinite(value) for value in truth.values())
        assert {r["stabmon/step"]: r[key] for r in rows(tmp_path) if key in r} == truth
        assert {e.step: e.value for e in events.Scalars(key)} == truth
        assert {m.step: m.value for m in client.get_metric_history(run.info.run_id, key)} == truth
        assert {step: row[key] for step, row in kept if key in row} == truth
    losses = [(r["train/global_step"], r["train/loss"]) for r in rows(tmp_path) if "train/loss" in r]
    assert losses == [(e["step"], e["loss"]) for e in running.state.log_history if "loss" in e], (
        "the Trainer's own rows"
    )


def test_the_history_has_the_newest_row_with_its_own_step(tmp_path: Path) -> None:
    watcher = callback(tmp_path / "runs", **CLOCKS)
    running = trainer(model(), tmp_path, watcher, max_steps=STEPS, logging_steps=6)
    running.train()
    entries = [(e["step"], e["stabmon/step"], e["stabmon/context_share"]) for e in running.state.log_history[:2]]
    share = recorded(watcher, "context_share")
    assert entries == [(6, 4, share[4]), (12, 12, share[12])]


def test_none_keeps_the_history_as_it_was(tmp_path: Path) -> None:
    running = trainer(model(), tmp_path, callback(tmp_path / "runs", log_to="none"), max_steps=STEPS, logging_steps=6)
    running.train()
    assert not any(key.startswith("stabmon/") for entry in running.state.log_history for key in entry)


def test_a_reporter_that_raises_is_dropped_and_training_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(TrainerCallback):
        def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any], **kwargs: Any) -> None:
            assert not any(key.startswith("stabmon/") for key in logs)

    monkeypatch.setitem(integration_utils.INTEGRATION_TO_CALLBACK, "broken", Broken)
    watcher = callback(tmp_path / "runs", **CLOCKS)
    running = trainer(model(), tmp_path, watcher, max_steps=STEPS, report_to=["broken"])
    running.train()
    assert running.state.global_step == STEPS
    assert [r.message for r in caplog.records if "dropped" in r.message] == [
        "tracker_broken failed at step 4 and is dropped; training goes on"
    ]


def test_an_unknown_tracker_is_refused_when_the_callback_is_made() -> None:
    with pytest.raises(ValueError, match=r"log_to='wandbb' is not allowed: it takes 'trainer' .*'wandb', 'mlflow'"):
        StabilityCallback(log_to="wandbb")
