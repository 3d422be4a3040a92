from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import Trainer, TrainerCallback

from tests.alerts_at import AlertsAt
from tests.test_huggingface import callback, model, trainer

SAVING = {"save_strategy": "steps", "save_steps": 4, "save_total_limit": 1}


class Found(TrainerCallback):
    """The folders that there are at the end of some steps."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.at: dict[int, set[str]] = {}

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.at[state.global_step] = names(self.folder)


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir() if path.is_dir() and path.name != "runs"}


def run(folder: Path, detector: AlertsAt, steps: int, on_alert: Any, **arguments: Any) -> tuple[Trainer, Found]:
    found = Found(folder)
    watcher = callback(folder / "runs", detectors=[detector], on_alert=on_alert)
    running = trainer(model(), folder, watcher, found, max_steps=steps, **{**SAVING, **arguments})
    running.train()
    return running, found


def test_stop_ends_training_at_the_step_of_the_alert(tmp_path: Path) -> None:
    running, _ = run(tmp_path, AlertsAt(6), 12, "stop")
    assert running.state.global_step == 6


def test_a_checkpoint_on_an_alert_evicts_none_and_the_last_good_one_outlives_the_limit(tmp_path: Path) -> None:
    running, found = run(tmp_path, AlertsAt(6, since=5), 12, "checkpoint")
    assert running.state.global_step == 12
    assert found.at[5] == {"checkpoint-4"}
    assert found.at[6] == {"checkpoint-4", "stabmon-alert-step-6", "stabmon-good-step-4"}
    assert names(tmp_path) == {"checkpoint-12", "stabmon-alert-step-6", "stabmon-good-step-4"}, (
        "the limit holds as before"
    )
    assert running.args.save_total_limit == 1


@pytest.mark.parametrize("kept", ["stabmon-alert-step-6", "stabmon-good-step-4"])
def test_a_run_goes_on_from_either(tmp_path: Path, kept: str) -> None:
    run(tmp_path, AlertsAt(6, since=5), 12, "checkpoint")
    straight, resumed = model(), model()
    trainer(straight, tmp_path / "straight", max_steps=12).train()
    trainer(resumed, tmp_path / "resumed", max_steps=12).train(resume_from_checkpoint=str(tmp_path / kept))
    assert all(torch.equal(a, b) for a, b in zip(straight.parameters(), resumed.parameters(), strict=True))


def test_an_alert_at_a_routine_save_leaves_both(tmp_path: Path) -> None:
    _, found = run(tmp_path, AlertsAt(8, since=7), 12, "checkpoint")
    assert found.at[8] == {"checkpoint-4", "checkpoint-8", "stabmon-alert-step-8", "stabmon-good-step-4"}
    assert names(tmp_path) == {"checkpoint-12", "stabmon-alert-step-8", "stabmon-good-step-4"}


def test_without_a_limit_nothing_needs_to_be_kept(tmp_path: Path) -> None:
    run(tmp_path, AlertsAt(6, since=5), 8, "checkpoint", save_total_limit=None)
    assert names(tmp_path) == {"checkpoint-4", "checkpoint-8", "stabmon-alert-step-6"}


def test_a_warning_writes_nothing(tmp_path: Path) -> None:
    run(tmp_path, AlertsAt(6, "warning"), 8, "checkpoint")
    assert names(tmp_path) == {"checkpoint-8"}
