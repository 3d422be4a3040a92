"""Which run log a training from a checkpoint goes on in."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stabmon.huggingface import StabilityCallback
from stabmon.runlog import read
from stabmon.runlog.reader import has_table
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


def test_a_run_that_goes_on_in_another_output_folder_takes_its_run_log_along(tmp_path: Path) -> None:
    first = train(tmp_path / "one", 4)
    with closing(sqlite3.connect(first)) as db:
        db.execute("PRAGMA journal_mode=wal")
        db.execute("CREATE TABLE newest (row)")  # as of a run that was killed, it lies beside the file
        assert first.with_name(f"{first.name}-wal").stat().st_size
        second = train(tmp_path / "two", 6, resume=str(tmp_path / "one" / "checkpoint-4"))
    straight = train(tmp_path / "straight", 6)
    assert second == tmp_path / "two" / "stabmon" / first.name
    assert (steps(first), steps(second)) == ([1, 2, 3, 4], [1, 2, 3, 4, 5, 6])
    assert [path.name for path in second.parent.iterdir()] == [second.name]
    with closing(sqlite3.connect(second)) as db:
        assert has_table(db, "newest")
    for name in ("unigram_loss", "uniform_loss", "pretrained"):
        found, wanted = ([s.scalar(name) for s, _ in read(log).feeds()] for log in (second, straight))
        np.testing.assert_array_equal(found, wanted, name)


def test_a_run_log_that_cannot_be_brought_along_stops_no_training(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first = train(tmp_path / "one", 4)
    first.write_bytes(b"torn")
    second = train(tmp_path / "two", 6, resume=str(tmp_path / "one" / "checkpoint-4"))
    assert steps(second) == [5, 6]
    assert ["could not be copied" in r.message for r in caplog.records if "run log" in r.message][:1] == [True]
    assert [path.name for path in second.parent.iterdir()] == [second.name]


def test_a_trial_of_a_search_takes_its_run_log_along_too(tmp_path: Path) -> None:
    first = train(tmp_path / "one", 4)
    trial = tmp_path / "one" / "run-0"
    trial.mkdir()
    (tmp_path / "one" / "checkpoint-4").rename(trial / "checkpoint-4")
    assert steps(train(tmp_path / "two", 6, resume=str(trial / "checkpoint-4"))) == [1, 2, 3, 4, 5, 6]
    assert steps(first) == [1, 2, 3, 4]
