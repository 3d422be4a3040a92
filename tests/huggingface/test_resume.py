"""Which run log a training from a checkpoint goes on in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from stabmon.huggingface import StabilityCallback
from stabmon.runlog import read
from tests.test_huggingface import model, trainer

SAVING = {"save_strategy": "steps", "save_steps": 2}


def train(folder: Path, max_steps: int, resume: Any = None, **settings: Any) -> Path:
    """The run log."""
    watching = StabilityCallback(serve=False, **settings)
    trainer(model(), folder, watching, max_steps=max_steps, **SAVING).train(resume_from_checkpoint=resume)
    assert watching.monitor is not None
    assert watching.monitor.run_log is not None
    return watching.monitor.run_log


def steps(log: Path) -> list[int]:
    return [snapshot.step for snapshot, _ in read(log).feeds()]


def test_a_run_goes_on_in_its_own_run_log_though_another_ran_in_the_folder_meanwhile(tmp_path: Path) -> None:
    first, other = train(tmp_path, 4), train(tmp_path, 1)
    assert train(tmp_path, 6, resume=str(tmp_path / "checkpoint-4")) == first
    assert (steps(first), steps(other)) == ([1, 2, 3, 4, 5, 6], [1])


def test_under_a_scheduler_the_run_keeps_the_name_of_its_first_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "1001")
    first = train(tmp_path, 4)
    monkeypatch.setenv("SLURM_JOB_ID", "1002")
    assert train(tmp_path, 6, resume=True) == first == tmp_path / "stabmon" / "1001.stabmon"
    assert steps(first) == [1, 2, 3, 4, 5, 6]


def test_a_run_whose_log_is_gone_begins_a_new_one_of_its_name(tmp_path: Path) -> None:
    first, other = train(tmp_path, 4), train(tmp_path, 1)
    first.unlink()
    assert train(tmp_path, 6, resume=True) == first
    assert (steps(first), steps(other)) == ([5, 6], [1])


def test_a_given_name_wins_over_the_checkpoints(tmp_path: Path) -> None:
    train(tmp_path, 4, run="first")
    assert steps(train(tmp_path, 6, resume=True, run="second")) == [5, 6]
