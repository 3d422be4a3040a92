"""Logs whose lines name an epoch and no step."""

from __future__ import annotations

import pytest

from stabmon.readers import ReadError
from tests.readers.reading import read

LOSSES = [(1, 3.0), (2, 2.5), (3, 2.25), (4, 2.0)]


def lines(*of_an_epoch: str) -> str:
    """Under a line of settings, as most programs print it."""
    filled = [line.format(e=epoch, l=loss, b=64 * epoch) for epoch, loss in LOSSES for line in of_an_epoch]
    return "\n".join(["Namespace(epochs=50, steps=100, lr=0.1)", *filled])


@pytest.mark.parametrize(
    "line",
    [
        "Epoch [{e}/50], Loss: {l}",
        "Epoch: {e} | loss {l}",
        "epoch {e} train_loss={l} val_loss=9.0",
        "====> Epoch: {e} Average loss: {l}",
        "[Epoch {e:03d}] loss: {l}",
        "Epoch #{e}.0: loss {l}, test acc 0.5",
        "{{'epoch': {e}, 'train_loss': {l}}}",
    ],
)
def test_epochs_stand_for_steps_and_that_is_told(line: str) -> None:
    found = read(lines(line))
    assert found.losses == LOSSES
    assert "There is no step; epochs stand for steps." in found.notes


def test_a_heading_names_the_epoch_of_the_lines_below_it() -> None:
    found = read(lines("Epoch {e}/50", "-----", "train Loss: {l} Acc: 0.5", "val Loss: 9.0 Acc: 0.5"))
    assert found.losses == LOSSES
    assert [step for step, _ in found.of("eval_loss")] == [2, 3, 4, 4]


def test_a_line_of_the_validation_alone_is_an_evaluation() -> None:
    found = read(lines("Epoch {e} [train] loss {l}", "Epoch {e} [valid] loss 9.0"))
    assert found.losses == LOSSES
    assert found.of("eval_loss")[0] == (2, 9.0)


def test_several_lines_of_an_epoch_are_averaged_and_told() -> None:
    found = read(lines("Epoch {e} loss {l}", "Epoch {e} loss 1.0"))
    assert found.losses == [(epoch, (loss + 1) / 2) for epoch, loss in LOSSES]
    assert "Several losses of one step, 4 times" in found.notes


@pytest.mark.parametrize(
    "line",
    [
        "Epoch {e}, Step {b}, Loss: {l}",
        "epoch={e} iter={b} loss={l}",
        "| epoch {e} | {b}/ 2983 batches | loss {l}",
        "Train Epoch: 1 [{b}/60000 ({e}%)]\tLoss: {l}",
    ],
)
def test_where_a_line_names_a_step_too_that_is_the_step(line: str) -> None:
    found = read(lines(line))
    assert found.losses == [(64 * epoch, loss) for epoch, loss in LOSSES]
    assert "epochs stand for steps" not in found.notes


@pytest.mark.parametrize("line", ["Epoch 0.{e} loss {l}", "Epoch {e}\nStep {b}\nloss {l}", "epoch {e} val_loss={l}"])
def test_parts_of_epochs_steps_elsewhere_and_evaluations_alone_are_refused(line: str) -> None:
    with pytest.raises(ReadError, match="holds no losses"):
        read(lines(line))
