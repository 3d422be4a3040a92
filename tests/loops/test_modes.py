"""A network that an evaluation leaves in eval mode is told of; one that is meant to be in it is not."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from stabmon.taps.mode import STEPS
from tests.loops.decoder import Decoder, batches, loss_of
from tests.loops.recipe import adamw
from tests.loops.witness import Watched

ALL = 3 * STEPS
Turn = Callable[[nn.Module, int], None]
"""What the loop does to the model's mode before a step of that number."""


def left_in_eval(model: nn.Module, step: int) -> None:
    if step == STEPS:
        model.eval()
        with torch.no_grad():
            model(next(batches(1))[0])


def evaluated(model: nn.Module, step: int) -> None:
    model.eval()
    model(next(batches(1))[0])
    model.train()


def in_eval_at_first(model: nn.Module, step: int) -> None:
    model.train(step >= ALL // 2)


def in_eval_now_and_then(model: nn.Module, step: int) -> None:
    model.train(step % STEPS > 1)


@pytest.mark.parametrize(
    ("turn", "said"), [(left_in_eval, 1), (evaluated, 0), (in_eval_at_first, 0), (in_eval_now_and_then, 0)]
)
def test_being_trained_on_in_eval_mode_is_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, turn: Turn, said: int
) -> None:
    trained(tmp_path, turn)
    told = [r for r in caplog.records if r.levelno == logging.WARNING and "trained in eval mode" in r.message]
    assert len(told) == said


def test_what_is_left_in_eval_mode_is_read_again_from_the_second_such_step_on(tmp_path: Path) -> None:
    watched = trained(tmp_path, left_in_eval)
    read = [not np.isnan(snapshot.scalar("context_share")) for snapshot in watched.kept.snapshots]
    assert read == [step != STEPS + 1 for step in range(1, ALL + 1)]


def trained(folder: Path, turn: Turn) -> Watched:
    model = Decoder()
    [optimizer] = adamw(model)
    watched = Watched(folder, model, [optimizer])
    for step, (inputs, targets) in enumerate(batches(ALL)):
        turn(model, step)
        loss = loss_of(model, inputs, targets)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        watched.step(loss, targets)
    watched.monitor.close()
    return watched
