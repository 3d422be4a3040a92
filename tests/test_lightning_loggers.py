from __future__ import annotations

import csv
import math
from pathlib import Path
from typing import Any

import mlflow
import pytest
from lightning.pytorch.loggers import CSVLogger, MLFlowLogger, TensorBoardLogger, WandbLogger
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from stabmon.lightning import StabilityCallback
from stabmon.runlog import read
from tests.frameworks import Module, lightning_trainer
from tests.trainings import BATCH, Keep, Network, loader, watched
from tests.wandb_file import rows

STEPS, EVERY = 8, 4


def test_every_logger_of_the_trainer_gets_the_headline_at_the_right_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("WANDB_SILENT", "true")
    # Lightning's logger writes in threads of its store, which is then the one that flush_async_logging waits for.
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "store").as_uri())
    wandb_run = WandbLogger(project="test", save_dir=tmp_path, offline=True)
    loggers: list[Any] = [
        TensorBoardLogger(tmp_path, "events"),
        CSVLogger(tmp_path, "csv"),
        MLFlowLogger(tracking_uri=(tmp_path / "store").as_uri()),
        wandb_run,
    ]
    watcher = StabilityCallback(
        **watched(tmp_path, Keep()), every=EVERY, probe_every=EVERY, dense_steps=0, log_to="trainer"
    )
    trainer = lightning_trainer(tmp_path, watcher, logger=loggers, max_steps=STEPS)
    trainer.fit(Module(Network()), loader(BATCH, BATCH * STEPS))
    wandb_run.experiment.finish()
    mlflow.flush_async_logging()
    assert watcher.monitor is not None
    assert watcher.monitor.run_log is not None
    recorded = [snapshot for snapshot, _ in read(watcher.monitor.run_log).feeds()]
    events, (csv_file,) = EventAccumulator(loggers[0].log_dir), tmp_path.glob("csv/*/metrics.csv")
    events.Reload()
    for name in ("context_share", "trust_ratio"):
        key, truth = f"stabmon/{name}", {s.step: s.scalar(name) for s in recorded if s.step % EVERY == 0}
        assert sorted(truth) == [4, 8]
        assert all(math.isfinite(value) for value in truth.values())
        assert {e.step: e.value for e in events.Scalars(key)} == truth
        written = [row for row in csv.DictReader(csv_file.read_text().splitlines()) if row[key]]
        assert {int(row["step"]): float(row[key]) for row in written} == truth
        history = loggers[2].experiment.get_metric_history(loggers[2].run_id, key)
        assert {m.step: m.value for m in history} == truth
        assert {row["stabmon/step"]: row[key] for row in rows(tmp_path) if key in row} == truth


def test_none_leaves_the_loggers_alone(tmp_path: Path) -> None:
    trainer = lightning_trainer(
        tmp_path, StabilityCallback(**watched(tmp_path, Keep()), every=1, log_to="none"),
        logger=CSVLogger(tmp_path, "csv"), max_steps=STEPS,
    )  # fmt: skip
    trainer.fit(Module(Network()), loader(BATCH, BATCH * STEPS))
    assert not any("stabmon" in file.read_text() for file in tmp_path.glob("csv/*/metrics.csv"))
