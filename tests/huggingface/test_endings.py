"""Trainings that an exception ended, of which the Trainer tells no callback."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from torch import nn
from transformers import TrainerCallback

from stabmon.huggingface import StabilityCallback
from stabmon.runlog import read
from tests.test_huggingface import model, trainer


class Raises(TrainerCallback):  # type: ignore[misc]  # transformers is not followed
    def __init__(self, error: BaseException) -> None:
        self.error = error

    def on_step_end(self, *_: Any, **__: Any) -> None:
        raise self.error


def hooks(network: nn.Module) -> int:
    return sum(len(m._forward_pre_hooks) + len(m._forward_hooks) for m in network.modules())


def broken(network: nn.Module, folder: Path, error: BaseException) -> StabilityCallback:
    watching = StabilityCallback(serve=False)
    with pytest.raises(type(error)):
        trainer(network, folder, watching, Raises(error)).train()
    return watching


def state(watching: StabilityCallback) -> str | None:
    assert watching.monitor is not None
    assert watching.monitor.run_log is not None
    return read(watching.monitor.run_log).state


@pytest.mark.parametrize(("error", "ended"), [(RuntimeError("mine"), "failed"), (KeyboardInterrupt(), "stopped")])
def test_the_next_training_of_another_trainer_lets_go_of_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException, ended: str
) -> None:
    network = model()
    watching = broken(network, tmp_path / "a", error)
    assert (state(watching), hooks(network) > 0) == ("running", True)
    for name in ("last_exc", "last_value"):  # as a notebook does
        monkeypatch.setattr(sys, name, error, raising=False)
    trainer(model(), tmp_path / "b", StabilityCallback(serve=False)).train()
    assert (state(watching), hooks(network)) == (ended, 0)


def test_two_callbacks_of_one_trainer_and_a_training_in_another_thread_leave_each_other_alone(tmp_path: Path) -> None:
    inside, go_on = threading.Event(), threading.Event()

    class Waits(TrainerCallback):  # type: ignore[misc]
        def on_train_begin(self, *_: Any, **__: Any) -> None:
            inside.set()
            go_on.wait(60)

    pair = [StabilityCallback(serve=False, run=name) for name in "ab"]
    thread = threading.Thread(target=trainer(model(), tmp_path / "a", *pair, Waits()).train)
    thread.start()
    assert inside.wait(60)
    meanwhile = StabilityCallback(serve=False)
    trainer(model(), tmp_path / "b", meanwhile).train()
    assert [state(watching) for watching in pair] == ["running", "running"]
    go_on.set()
    thread.join()
    assert [state(watching) for watching in (*pair, meanwhile)] == ["finished"] * 3
