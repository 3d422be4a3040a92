from __future__ import annotations

from pathlib import Path

import pytest
import torch
from lightning.pytorch.callbacks import ModelCheckpoint

from stabmon.lightning import StabilityCallback
from tests.alerts_at import AlertsAt
from tests.frameworks import Module, lightning_trainer
from tests.trainings import BATCH, Keep, Network, loader, watched

STEPS = 8


def fit(folder: Path, on_alert: str) -> int:
    watcher = StabilityCallback(**watched(folder, Keep()), detectors=[AlertsAt(5)], on_alert=on_alert)
    saving = ModelCheckpoint(folder / "own", filename="{step}", every_n_train_steps=4, save_top_k=1)
    trainer = lightning_trainer(folder, watcher, saving, max_steps=STEPS, enable_checkpointing=True)
    trainer.fit(Module(Network()), loader(BATCH, BATCH * STEPS))
    return int(trainer.global_step)


@pytest.mark.parametrize(("on_alert", "steps"), [("log", STEPS), ("stop", 5)])
def test_stop_ends_the_fit_at_the_step_of_the_alert(tmp_path: Path, on_alert: str, steps: int) -> None:
    assert fit(tmp_path, on_alert) == steps


def test_a_checkpoint_on_an_alert_has_a_place_of_its_own(tmp_path: Path) -> None:
    assert fit(tmp_path, "checkpoint") == STEPS
    (kept,) = tmp_path.glob("runs/*.ckpt")
    assert kept.name == "stabmon-alert-step-5.ckpt"
    assert torch.load(kept, weights_only=False)["global_step"] == 5
    assert [path.name for path in (tmp_path / "own").iterdir()] == ["step=8.ckpt"]
