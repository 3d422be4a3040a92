"""The loss of a step where the Trainer works it out by itself, and how a run that an exception ended is told."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from transformers import Trainer, TrainingArguments

from stabmon.huggingface import StabilityCallback
from stabmon.runlog import read
from tests.test_huggingface import STEPS, Keep, Tokens, callback, model, trainer


def entries(running: Trainer) -> list[float]:
    return [entry["loss"] for entry in running.state.log_history if "loss" in entry]


def losses(kept: Keep) -> list[float]:
    return [snapshot.scalar("loss") for snapshot in kept.snapshots]


@pytest.mark.parametrize("accumulated", [1, 2])
def test_under_label_smoothing_the_loss_is_the_trainers(tmp_path: Path, accumulated: int) -> None:
    kept = Keep()
    given = {"label_smoothing_factor": 0.1, "logging_steps": 1, "gradient_accumulation_steps": accumulated}
    running = trainer(model(), tmp_path, callback(tmp_path / "runs", kept), **given)
    running.train()
    assert len(entries(running)) == STEPS
    assert losses(kept) == pytest.approx(entries(running), abs=1e-4), "the Trainer rounds to 4 digits"


def test_between_two_logs_each_steps_own_loss_is_read(tmp_path: Path) -> None:
    kept = Keep()
    running = trainer(model(), tmp_path, callback(tmp_path / "runs", kept), label_smoothing_factor=0.1, logging_steps=2)
    running.train()
    found = losses(kept)
    assert [sum(found[i : i + 2]) / 2 for i in (0, 2)] == pytest.approx(entries(running), abs=1e-4)
    assert len(set(found)) == STEPS


def of_my_own(outputs: Any, labels: Tensor, num_items_in_batch: Any = None) -> Tensor:
    return 2 * F.cross_entropy(outputs.logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())


def test_with_a_loss_function_of_ones_own_the_loss_is_that(tmp_path: Path) -> None:
    kept = Keep()
    arguments = TrainingArguments(
        str(tmp_path), max_steps=STEPS, report_to=[], save_strategy="no", disable_tqdm=True, use_cpu=True,
        logging_steps=1,
    )  # fmt: skip
    watching = callback(tmp_path / "runs", kept)
    running = Trainer(model(), arguments, train_dataset=Tokens(), callbacks=[watching], compute_loss_func=of_my_own)
    running.train()
    assert losses(kept) == pytest.approx(entries(running), abs=1e-4)
    assert losses(kept)[0] == pytest.approx(2 * torch.log(torch.tensor(64.0)).item(), abs=0.5)


def test_a_run_that_an_exception_ended_is_failed_when_another_begins(tmp_path: Path) -> None:
    class Breaks(StabilityCallback):
        def on_step_end(self, *args: Any, **kwargs: Any) -> None:
            super().on_step_end(*args, **kwargs)
            raise RuntimeError("out of memory")

    watching = Breaks(serve=False, folder=tmp_path, linger_seconds=600)
    running = trainer(model(), tmp_path, watching)
    logs = []
    for _ in range(2):
        with pytest.raises(RuntimeError, match="out of memory"):
            running.train()
        assert watching.monitor is not None
        logs.append(watching.monitor.run_log)
    watching.monitor.close("stopped")
    assert [read(log).state for log in logs if log] == ["failed", "stopped"]


ENDS = """
import sys, torch
from stabmon import Monitor
model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.LayerNorm(4))
monitor = Monitor(model, torch.optim.SGD(model.parameters(), lr=0.1), serve=False, run="it", folder=sys.argv[1])
for _ in range(3):
    model(torch.ones(2, 4)).sum().backward()
    monitor.step(1.0)
raise {}
"""


@pytest.mark.parametrize(("ending", "state"), [("RuntimeError", "failed"), ("SystemExit", "stopped")])
def test_how_a_program_ended_that_closes_nothing(tmp_path: Path, ending: str, state: str) -> None:
    subprocess.run([sys.executable, "-c", ENDS.format(ending), str(tmp_path)], capture_output=True, check=False)
    assert read(tmp_path / "it.stabmon").state == state
