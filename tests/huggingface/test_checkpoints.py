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


BEST = {
    "eval_strategy": "steps", "eval_steps": 2, "metric_for_best_model": "score", "greater_is_better": True,
    "load_best_model_at_end": True, "max_steps": 8,
}  # fmt: skip


def scored(folder: Path, scores: list[float], **arguments: Any) -> Trainer:
    """The evaluations at steps 2, 4, 6 and 8 give these scores; there is an alert at step 4."""
    given = iter(scores)
    watcher = callback(folder / "runs", detectors=[AlertsAt(4)], on_alert="checkpoint")
    running = trainer(model(), folder, watcher, **{**SAVING, **BEST, **arguments})
    running.compute_metrics = lambda _: {"score": next(given)}
    running.train()
    return running


@pytest.mark.parametrize(
    ("scores", "best", "alert"),
    [
        ([1, 0, 2, 0], "checkpoint-6", "stabmon-alert-step-5"),
        ([1, 2, 0, 0], "checkpoint-4", "stabmon-alert-step-4"),
        ([2, 0, 1, 0], "checkpoint-2", "stabmon-alert-step-5"),
    ],
)
def test_where_the_score_decides_what_is_saved_the_best_stays_and_the_alerts_own_comes_a_step_later(
    tmp_path: Path, scores: list[float], best: str, alert: str
) -> None:
    running = scored(tmp_path, scores, save_strategy="best")
    assert Path(running.state.best_model_checkpoint).name == best
    assert {best, alert} <= names(tmp_path)
    assert running.args.save_total_limit == 1


def test_the_best_of_what_the_trainer_saves_is_not_the_alerts_own(tmp_path: Path) -> None:
    running = scored(tmp_path, [1, 3, 0, 0], save_steps=6)
    assert names(tmp_path) == {"checkpoint-8", "stabmon-alert-step-4"}
    assert running.state.best_model_checkpoint is None, "of step 4, the best, the Trainer itself saves none"


def test_an_alert_in_a_search_has_its_place_beside_the_trials_checkpoints(tmp_path: Path) -> None:
    class Searching(Trainer):  # type: ignore[misc]  # transformers is not followed
        def _get_output_dir(self, trial: Any) -> str:
            return str(Path(self.args.output_dir) / f"run-{trial}")

    watcher = callback(tmp_path / "runs", detectors=[AlertsAt(3)], on_alert="checkpoint")
    usual = trainer(model(), tmp_path, max_steps=4, **SAVING)
    running = Searching(usual.model, usual.args, train_dataset=usual.train_dataset, callbacks=[watcher])
    running._hp_search_setup = lambda trial: None
    running.train(trial={"learning_rate": 1e-3})
    (folder,) = tmp_path.glob("run-*")
    assert names(folder) == {"checkpoint-4", "stabmon-alert-step-3"}


def test_an_alert_whose_checkpoint_an_exception_prevented_is_none_of_the_next_training(tmp_path: Path) -> None:
    class Breaks(TrainerCallback):
        def on_evaluate(self, *_: Any, **__: Any) -> None:
            raise RuntimeError("out of memory")

    watcher = callback(tmp_path / "runs", detectors=[AlertsAt(3)], on_alert="checkpoint")
    running = trainer(model(), tmp_path, watcher, Breaks(), max_steps=4, eval_strategy="steps", eval_steps=3, **SAVING)
    with pytest.raises(RuntimeError, match="out of memory"):
        running.train()
    watcher._detectors = [AlertsAt(99)]
    running.remove_callback(Breaks)
    running.train()
    assert names(tmp_path) == {"checkpoint-4"}
    assert running.args.save_total_limit == 1
