"""Runs that are folders, and our own run log."""

from __future__ import annotations

import sqlite3
import sys
import threading
import time
from pathlib import Path

import mlflow
import numpy as np
import pytest
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from stabmon.readers import ReadError, found, opened
from stabmon.records import Event as Told
from stabmon.records import Layout, Run, Site, Snapshot
from stabmon.runlog import RunLogWriter
from tests.readers.made import loss as loss_of
from tests.readers.made import norm, rate
from tests.readers.test_follow import SECONDS

STEPS = 30


def events(folder: Path, start: int = 0, stop: int = STEPS) -> None:
    writer = EventFileWriter(str(folder), filename_suffix=f".{start}")
    for i in range(start, stop):
        scalars = {"train/loss": loss_of(i), "train/learning_rate": rate(i), "train/grad_norm": norm(i)}
        scalars |= {"eval/loss": 3.25} if i % 10 == 0 else {}
        for tag, scalar in scalars.items():
            summary = Summary(value=[Summary.Value(tag=tag, simple_value=scalar)])
            writer.add_event(Event(wall_time=1_700_000_000 + i, step=10 * i, summary=summary))
    writer.close()


def losses(path: Path) -> list[tuple[int, float]]:
    fed = [(snapshot.step, snapshot.scalar("loss")) for snapshot, _ in opened(path).feeds()]
    return [(step, value) for step, value in fed if value == value]


EXPECTED = [(10 * i, pytest.approx(loss_of(i), rel=1e-6)) for i in range(STEPS)]


def test_tensorboards_files_the_later_after_the_earlier(tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "mine"
    events(folder, 0, 20)
    events(folder, 20, STEPS)
    assert found([str(tmp_path)]) == [folder]
    recording = opened(folder)
    fed = list(recording.feeds())
    assert (recording.format, recording.run.name, recording.run.started) == ("TensorBoard event files", "mine", 1.7e9)
    assert losses(folder) == EXPECTED
    first = fed[0][0]
    assert first.time == 1.7e9
    assert [first.scalar(s) for s in ("total_grad_norm", "learning_rate")] == pytest.approx([norm(0), rate(0)])
    assert sum(snapshot.scalar("eval_loss") == 3.25 for snapshot, _ in fed) == 3


def test_an_event_file_that_is_cut_off_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    events(tmp_path / "run")
    (path,) = (tmp_path / "run").iterdir()
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    part = losses(path)
    assert 10 < len(part) < 20
    assert part == EXPECTED[: len(part)]


def test_without_tensorboard_it_is_told_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events(tmp_path / "run", 0, 2)
    monkeypatch.setitem(sys.modules, "tensorboard.backend.event_processing.event_file_loader", None)
    with pytest.raises(ReadError, match=r"pip install 'stabmon\[tensorboard\]'"):
        opened(tmp_path / "run")


def test_mlflows_folder_of_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    mlflow.set_tracking_uri((tmp_path / "mlruns").as_uri())
    experiment = mlflow.create_experiment("mine")  # `set_experiment` would hold for other tests too
    with mlflow.start_run(experiment_id=experiment, run_name="my run"):
        for i in range(STEPS):
            mlflow.log_metrics({"train/loss": loss_of(i), "train/grad_norm": norm(i), "lr": rate(i)}, step=10 * i)
            mlflow.log_metrics({"eval/loss": 3.25}, step=10 * i) if i % 10 == 0 else None
    (folder,) = found([str(tmp_path)])
    recording = opened(folder)
    fed = list(recording.feeds())
    assert (recording.format, recording.run.name) == ("MLflow run", "my run")
    assert losses(folder) == EXPECTED
    assert recording.seen == {"loss", "total_grad_sq", "learning_rate", "eval_loss"}
    assert fed[0][0].time > 1.6e9


LAYOUT = Layout((("loss", ""), ("norm_input_msq", "h.0.ln_1")), (Site(""), Site("h.0.ln_1", 0)))


def fed(step: int) -> tuple[Snapshot, list[Told]]:
    values = np.array([3 + step, 1.5], np.float32)
    told = [Told(step, 100.0 + step, "evaluation", {"eval_loss": 2.5})] if step == 2 else []
    return Snapshot(step, 100.0 + step, values, LAYOUT), told


def test_our_own_run_log_is_told_as_it_was_fed(tmp_path: Path) -> None:
    path = tmp_path / "x.stabmon"
    log = RunLogWriter(path, Run("x", 100.0))
    for step in (1, 2, 3):
        snapshot, told = fed(step)
        log.emit(snapshot, [], told)
    log.close("finished")
    assert found([str(tmp_path)]) == [path]
    recording = opened(path)
    back = list(recording.feeds())
    assert (recording.format, recording.run.name, recording.recorded is not None) == ("stabmon run log", "x", True)
    assert [snapshot.values.tolist() for snapshot, _ in back] == [[4, 1.5], [5, 1.5], [6, 1.5]]
    assert [len(told) for _, told in back] == [0, 1, 0]
    assert recording.seen == {"loss", "norm_input_msq"}


def test_a_run_log_is_followed_until_the_run_has_ended(tmp_path: Path) -> None:
    path, told = tmp_path / "x.stabmon", threading.Event()
    log = RunLogWriter(path, Run("x", 100.0))
    steps: list[int] = []

    def follow() -> None:
        for snapshot, _ in opened(path, follow=True).feeds():
            steps.append(snapshot.step)
            told.set()

    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    end, last = time.monotonic() + SECONDS, 0
    while not told.is_set() and time.monotonic() < end:  # it commits once a second
        log.emit(*_emitted(last := last + 1))
        time.sleep(0.05)
    log.close("finished")
    thread.join(SECONDS)
    assert told.is_set()
    assert steps == list(range(1, last + 1))


def _emitted(step: int) -> tuple[Snapshot, list[object], list[Told]]:
    snapshot, told = fed(step)
    return snapshot, [], told


def test_a_database_of_another_program_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.stabmon"
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE a (b)")
    db.close()
    with pytest.raises(ReadError, match="is not a stabmon run log"):
        opened(path)
