"""What a loop or its framework tells of the run's end and of its checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import nn

from stabmon import Monitor
from stabmon.records import CHECKPOINT, PLANNED
from stabmon.runlog import read
from tests.alerts_at import AlertsAt
from tests.frameworks import Module, lightning_trainer
from tests.test_huggingface import callback as huggingface_callback
from tests.test_huggingface import model as huggingface_model
from tests.test_huggingface import trainer as huggingface_trainer
from tests.test_lightning import callback as lightning_callback
from tests.trainings import Keep, Network, loader

Told = list[tuple[int, str, dict[str, float | str]]]


def told_in(path: Path) -> Told:
    """Step, kind and detail of what was told of end and checkpoints."""
    events = [event for _, found in read(path).feeds() for event in found]
    return [(event.step, event.kind, dict(event.detail)) for event in events if event.kind in (PLANNED, CHECKPOINT)]


def test_a_plain_loop_tells_by_arguments_and_calls_and_only_names_are_kept(tmp_path: Path) -> None:
    model = nn.LayerNorm(4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with Monitor(model, optimizer, max_steps=3, folder=tmp_path, run="r", serve=False) as monitor:
        for step in (1, 2, 3):
            model(torch.randn(2, 4)).square().mean().backward()
            optimizer.step()
            monitor.step(0.5)
            monitor.saved(tmp_path / f"step-{step}.pt", gone=[step - 2] if step > 2 else ())
        monitor.planned(4)
    assert told_in(tmp_path / "r.stabmon") == [
        (0, PLANNED, {"steps": 3}),
        (1, CHECKPOINT, {"name": "step-1.pt"}),
        (2, CHECKPOINT, {"name": "step-2.pt"}),
        (3, CHECKPOINT, {"name": "step-3.pt", "gone": "1"}),
        (3, PLANNED, {"steps": 4}),
    ]


def test_a_resume_that_is_refused_leaves_the_run_log_as_it_was_and_nothing_attached(tmp_path: Path) -> None:
    model = nn.LayerNorm(4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with Monitor(model, optimizer, folder=tmp_path, run="r", serve=False) as monitor:
        for _ in range(6):
            model(torch.randn(2, 4)).square().mean().backward()
            optimizer.step()
            monitor.step(0.5)
    with pytest.raises(ValueError, match="max_steps=0"):
        Monitor(model, optimizer, folder=tmp_path, run="r", serve=False, start_step=2, max_steps=0)
    assert [snapshot.step for snapshot, _ in read(tmp_path / "r.stabmon").feeds()] == [1, 2, 3, 4, 5, 6]
    assert not model._forward_pre_hooks
    assert not model._forward_hooks


@pytest.mark.parametrize("steps", [0, -3, 2.5, "many"])
def test_a_number_of_steps_that_is_none_is_refused_before_the_first_and_logged_after_it(
    tmp_path: Path, steps: object, caplog: pytest.LogCaptureFixture
) -> None:
    model = nn.LayerNorm(4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    words = rf"max_steps={steps!r}: must be a whole number, 1 or more; leave it out where it is not known"
    with pytest.raises(ValueError, match=words):
        Monitor(model, optimizer, max_steps=steps, folder=tmp_path, serve=False)  # type: ignore[arg-type]
    with Monitor(model, optimizer, folder=tmp_path, serve=False) as monitor:
        with pytest.raises(TypeError, match="checkpoint=None: must be the path"):
            monitor.saved(None)  # type: ignore[arg-type]
        model(torch.randn(2, 4)).square().mean().backward()
        optimizer.step()
        monitor.step(0.5)
        monitor.planned(steps)  # type: ignore[arg-type]
        monitor.saved(None)  # type: ignore[arg-type]
    assert sum("is not recorded" in record.message for record in caplog.records) == 2


def test_the_trainer_of_hugging_face_tells_its_end_and_its_checkpoints_and_which_it_deleted(tmp_path: Path) -> None:
    watcher = huggingface_callback(tmp_path / "runs", log=True, run="r")
    saving = {"save_strategy": "steps", "save_steps": 2, "save_total_limit": 1}
    huggingface_trainer(huggingface_model(), tmp_path, watcher, max_steps=6, **saving).train()
    assert told_in(tmp_path / "runs" / "r.stabmon") == [
        (0, PLANNED, {"steps": 6}),
        (2, CHECKPOINT, {"name": "checkpoint-2"}),
        (4, CHECKPOINT, {"name": "checkpoint-4", "gone": "2"}),
        (6, CHECKPOINT, {"name": "checkpoint-6", "gone": "4"}),
    ]


def test_lightning_tells_its_end_and_its_checkpoints_and_which_it_deleted(tmp_path: Path) -> None:
    saver = ModelCheckpoint(tmp_path / "kept", filename="at-{step}", every_n_train_steps=2, save_top_k=1)
    watcher = lightning_callback(tmp_path, Keep(), log=True, run="r")
    running = lightning_trainer(tmp_path, watcher, saver, max_steps=6, max_epochs=-1, enable_checkpointing=True)
    running.fit(Module(Network()), loader())
    assert told_in(tmp_path / "runs" / "r.stabmon") == [
        (0, PLANNED, {"steps": 6}),
        (2, CHECKPOINT, {"name": "at-step=2.ckpt"}),
        (4, CHECKPOINT, {"name": "at-step=4.ckpt", "gone": "2"}),
        (6, CHECKPOINT, {"name": "at-step=6.ckpt", "gone": "4"}),
    ]


def test_lightning_files_that_stay_are_not_told_as_gone_and_each_is_of_the_step_it_was_written_at(
    tmp_path: Path,
) -> None:
    class Own(pl.Callback):  # type: ignore[misc]  # lightning is not followed
        """It comes before stabmon's, and keeps one checkpoint of its own."""

        def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
            if trainer.global_step == 3:
                trainer.save_checkpoint(tmp_path / "own.ckpt")
            if trainer.global_step == 5:
                (tmp_path / "own.ckpt").unlink()

    saver = ModelCheckpoint(tmp_path / "kept", filename="at-{step}", every_n_train_steps=2, save_top_k=-1)
    watcher = lightning_callback(
        tmp_path, Keep(), log=True, run="r", detectors=[AlertsAt(5)], on_alert="checkpoint", every=1
    )
    chosen = {"max_steps": 6, "max_epochs": -1, "enable_checkpointing": True}
    lightning_trainer(tmp_path, Own(), watcher, saver, **chosen).fit(Module(Network()), loader())
    assert told_in(tmp_path / "runs" / "r.stabmon") == [
        (0, PLANNED, {"steps": 6}),
        (2, CHECKPOINT, {"name": "at-step=2.ckpt"}),
        (3, CHECKPOINT, {"name": "own.ckpt"}),
        (4, CHECKPOINT, {"name": "at-step=4.ckpt", "gone": "3"}),
        (5, CHECKPOINT, {"name": "stabmon-alert-step-5.ckpt"}),
        (6, CHECKPOINT, {"name": "at-step=6.ckpt"}),
    ]
