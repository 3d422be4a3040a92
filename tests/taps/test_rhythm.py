"""Loops that call `monitor.step` in a wrong place, rarely, often or never: said once, in the log and to the page."""

import logging
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

from stabmon import Monitor
from stabmon.runlog import read
from stabmon.server.history import History
from stabmon.server.judged import unseen
from stabmon.server.verdict import verdict
from stabmon.taps.notices import Notices
from stabmon.taps.rhythm import UNSTEPPED, Rhythm

Loop = Callable[[Callable[[], None], Callable[[], None], Callable[[], None]], None]
"""Of backward, optimizer.step and monitor.step."""


def right(backward: Callable[[], None], step: Callable[[], None], call: Callable[[], None]) -> None:
    backward(), step(), call()


def accumulated(backward: Callable[[], None], step: Callable[[], None], call: Callable[[], None]) -> None:
    backward(), backward(), step(), call()


def before_the_step(backward: Callable[[], None], step: Callable[[], None], call: Callable[[], None]) -> None:
    backward(), call(), step()


def each_micro_batch(backward: Callable[[], None], step: Callable[[], None], call: Callable[[], None]) -> None:
    backward(), call(), backward(), step(), call()


def each_second_step(backward: Callable[[], None], step: Callable[[], None], call: Callable[[], None]) -> None:
    backward(), step(), backward(), step(), call()


def by_hand(backward: Callable[[], None], step: Callable[[], None], call: Callable[[], None]) -> None:
    call()


def another_optimizer(backward: Callable[[], None], step: Callable[[], None], call: Callable[[], None]) -> None:
    backward(), call()


@pytest.mark.parametrize(
    ("loop", "what"),
    [
        (right, []),
        (accumulated, []),
        (before_the_step, ["updates of the step that the loss is of"]),
        (each_micro_batch, ["which calls of monitor.step are optimizer steps"]),
        (each_second_step, ["most steps of the optimizer"]),
        (another_optimizer, ["updates"]),
        (by_hand, ["gradients and updates"]),
    ],
)
def test_a_wrong_place_is_said_once_and_a_right_one_never(loop: Loop, what: list[str]) -> None:
    notices = Notices()
    rhythm = Rhythm(notices, 1)
    for _ in range(3 * UNSTEPPED):
        loop(rhythm.backward, lambda: rhythm.stepped(7), lambda: rhythm.called(loop is not by_hand, False))
    assert [found["what"] for found in notices.take()] == what


def test_what_a_wrapper_keeps_to_itself_is_not_missed() -> None:
    notices = Notices()
    rhythm = Rhythm(notices, 1, hidden=True)
    for _ in range(3 * UNSTEPPED):
        rhythm.called(False, False)
    assert notices.take() == []


def test_two_optimizers_of_a_gan_one_of_which_steps_five_times_are_right() -> None:
    notices = Notices()
    rhythm = Rhythm(notices, 2)
    for _ in range(3 * UNSTEPPED):
        for optimizer in (1, 1, 1, 1, 1, 2):
            rhythm.backward()
            rhythm.stepped(optimizer)
        rhythm.called(True, False)
    assert notices.take() == []


def test_steps_that_a_loss_scaler_leaves_out_are_no_micro_batches() -> None:
    notices = Notices()
    rhythm = Rhythm(notices, 1)
    for number in range(3 * UNSTEPPED):
        rhythm.backward()
        if number % 2:
            rhythm.stepped(1)
        rhythm.called(True, True)
    assert notices.take() == []


def test_a_step_that_is_never_called_is_on_the_page_while_the_loop_runs(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    monitor = Monitor(model, optimizer, folder=tmp_path, run="r", serve=False)
    history = History(tmp_path / "r.stabmon")
    for _ in range(UNSTEPPED + 5):
        model(torch.randn(2, 4)).square().mean().backward()
        optimizer.step()
    deadline = time.monotonic() + 60
    while not history.unseen:  # in the file within a second, in which no step comes
        assert time.monotonic() < deadline
        time.sleep(0.1)
        history.look_again()
        history.refresh()
    (row,) = unseen(history)
    assert (row.what, row.step) == ("the steps", 0)
    assert row.why == "The optimizer has taken 50 steps, and monitor.step was never called."
    assert verdict(history, history.run.started + 200).text == (  # type: ignore[union-attr]
        f"The run has begun 3 min ago, but completed no step. {row.why} {row.todo}"
    )
    assert [r.message for r in caplog.records if r.levelno == logging.WARNING and "never called" in r.message] != []
    for _ in range(3):  # late, but not too late
        model(torch.randn(2, 4)).square().mean().backward()
        optimizer.step()
        monitor.step(0.5)
    monitor.close()
    assert [snapshot.step for snapshot, _ in read(history.path).feeds()] == [1, 2, 3]


def test_optimizers_that_step_inside_the_backward_pass_are_right(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4))
    optimizers = {p: torch.optim.SGD([p], lr=1e-3) for p in model.parameters()}

    def step(parameter: nn.Parameter) -> None:
        optimizers[parameter].step()
        optimizers[parameter].zero_grad()

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(step)
    with Monitor(model, list(optimizers.values()), folder=tmp_path, serve=False) as monitor:
        for _ in range(UNSTEPPED + 5):
            loss = model(torch.randn(2, 4)).square().mean()
            loss.backward()
            monitor.step(loss)
    assert [record.message for record in caplog.records if "monitor.step" in record.message] == []
