"""What a user names with --loss, --step and --run where the file has no columns, or one that its name tells of."""

from __future__ import annotations

from pathlib import Path

import pytest

from stabmon.readers import ReadError, found, opened
from stabmon.records import Run
from stabmon.runlog import RunLogWriter
from tests.readers.reading import read
from tests.snapshots import snapshot

LOSSES = [(0, 3.0), (10, 2.5), (20, 2.25)]
SCALAR = "Wall time,Step,Value\n" + "".join(f"{1700000000 + step}.5,{step},{loss}\n" for step, loss in LOSSES)


def losses(path: Path, **options: str) -> list[tuple[int, float]]:
    return [(snapshot.step, snapshot.scalar("loss")) for snapshot, _ in opened(path, **options).feeds()]


def scalar(folder: Path, name: str) -> Path:
    path = folder / name
    path.write_text(SCALAR)
    return path


@pytest.mark.parametrize(
    "name",
    [
        "run-train-tag-loss.csv",
        "run-.-tag-Loss_train.csv",
        "run-lightning_logs_version_0-tag-val_loss (1).csv",
        "run-accuracy-test-tag-epoch_loss.csv",
        "loss.csv",
    ],
)
def test_a_scalar_of_tensorboard_is_the_loss_where_its_files_name_says_so(tmp_path: Path, name: str) -> None:
    path = scalar(tmp_path, name)
    recording = opened(path)
    assert (recording.format, recording.run.started) == ("TensorBoard CSV of a scalar", 1700000000.5)
    assert losses(path) == LOSSES
    assert found([str(tmp_path)]) == [path]


@pytest.mark.parametrize("name", ["run-train-tag-accuracy.csv", "run-loss-tag-lr-AdamW.csv", "grad norm.csv"])
def test_one_of_something_else_is_refused_unless_the_column_is_named(tmp_path: Path, name: str) -> None:
    path = scalar(tmp_path, name)
    with pytest.raises(
        ReadError, match=r"the file's name, '[\w -]+', does not say that it is a loss; give .* --loss Value$"
    ):
        opened(path)
    assert losses(path, loss="Value") == LOSSES
    with pytest.raises(ReadError, match="has no 'loss'; give one of these as --loss: Wall time, Step, Value"):
        opened(path, loss="loss")
    scalar(tmp_path, "loss.csv")
    assert found([str(tmp_path)]) == [tmp_path / "loss.csv"]


def test_one_whose_name_does_not_say_is_read_and_that_is_told() -> None:
    part = read(SCALAR)
    assert part.losses == LOSSES
    assert "Nothing in the file, nor its name, says what 'Value' is; it was taken for the loss." in part.notes


@pytest.fixture
def run_log(tmp_path: Path) -> Path:
    path = tmp_path / "r1.stabmon"
    writer = RunLogWriter(path, Run("r1", 0.0))
    writer.emit(snapshot(1, 2.5), (), ())
    writer.close("finished")
    return path


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("loss", "has no 'nope'; its loss is the one that the training told, so leave --loss out"),
        ("step", "has no 'nope'; its step is the one that the training told, so leave --step out"),
        ("run", "of one run, 'r1', and has no 'nope'; leave the run's name out"),
    ],
)
def test_what_a_run_log_has_not_is_refused_and_not_passed_over(run_log: Path, option: str, said: str) -> None:
    with pytest.raises(ReadError, match=rf"r1\.stabmon is a stabmon run log.* {said}$"):
        opened(run_log, **{option: "nope"})
    assert losses(run_log, loss="loss", step="step", run="r1") == [(1, 2.5)]
