"""What Keras prints, as its versions do."""

from __future__ import annotations

from pathlib import Path

import pytest

from stabmon.records import RESUME
from tests.readers.reading import read
from tests.readers.test_follow import following

LOSSES = [3.0, 2.5, 2.25]


def printed(*lines: str, losses: list[float] = LOSSES, first: int = 1, last: int = 3) -> str:
    """`lines` of each epoch, with its number and loss filled in."""
    return "".join(
        "".join(f"{line}\n" for line in ("Epoch {e}/{last}", *lines)).format(e=e, last=last, loss=x, val=x + 0.5)
        for e, x in enumerate(losses, first)
    )


EARLY = "\r  1/100 [..............................] - ETA: 1:03 - loss: 9.5000 - accuracy: 0.1"
LAST = "\r100/100 [==============================] - ETA: 0s - loss: 9.0000 - accuracy: 0.1"
FINAL = "\r100/100 [==============================] - 3s 12ms/step - loss: {loss} - accuracy: 0.1"
DRAWN = [
    (f"{EARLY}{LAST}{FINAL} - val_loss: {{val}} - val_accuracy: 0.1", "lr: 0.0010"),
    (
        EARLY[1:],
        LAST[1:],
        f"{FINAL[1:]} - val_loss: {{val}} - lr: 0.0010",
        "Epoch {e}: val_loss improved from inf to 1",
    ),
    (
        "     55/Unknown [...] - 3s 1ms/step - loss: 9.1",
        "100/100 [====] - 3s 1ms/step - loss: {loss} - val_loss: {val}",
    ),
    ("100/100 - 3s - loss: {loss} - val_loss: {val} - 3s/epoch - 12ms/step", ""),
    ("100/100 - 3s - 12ms/step - loss: {loss} - val_loss: {val}", ""),
    (
        "\r100/100 ━━━━━━━━━━ 0s 3ms/step - loss: 9.0",
        "1/1 ━━━ 0s 20ms/step\n100/100 ━━ 1s 3ms/step - loss: {loss} - val_loss: {val}",
    ),
    ("\r100/100 ━━━━━━━━━━ 0s 3ms/step - total_loss: {loss} - val_total_loss: {val} - z_loss: 1.0", ""),
]


@pytest.mark.parametrize("lines", DRAWN, ids=["terminal", "file", "unknown", "short", "3 short", "3", "own"])
def test_the_last_bar_of_each_epoch_is_read_and_steps_are_those_of_all_epochs(lines: tuple[str, ...]) -> None:
    found = read(printed(*lines))
    assert found.recording.format == "Keras log"
    assert found.losses == [(100, 3.0), (200, 2.5), (300, 2.25)]
    assert found.of("eval_loss") == [(100, 3.5), (200, 3.0), (300, 2.75)]
    assert "A step is the epoch times its steps." in found.notes


@pytest.mark.parametrize(
    "lines",
    [
        (" - 3s - loss: {loss} - acc: 0.1",),
        ("60000/60000 [==============================] - 5s 80us/sample - loss: {loss} - acc: 0.1",),
    ],
    ids=["not told", "samples"],
)
def test_where_no_number_of_steps_is_told_epochs_stand_for_steps(lines: tuple[str, ...]) -> None:
    found = read(printed(*lines))
    assert found.losses == [(1, 3.0), (2, 2.5), (3, 2.25)]
    assert "There is no step; epochs stand for steps." in found.notes
    samples = "Train on 60000 samples, validate on 10000 samples\n"
    assert read(samples + printed("60000/60000 [===] - 5s 80us/step - loss: {loss}")).losses == found.losses


def test_an_evaluation_afterwards_is_no_training() -> None:
    for bars in (EARLY + FINAL, "\r313/313 ━━━━ 1s 2ms/step - loss: {loss}"):
        found = read(printed(FINAL) + bars.format(loss=7) + "\n")
        assert found.losses == [(100, 3.0), (200, 2.5), (300, 2.25)]


def test_fits_of_one_epoch_each_are_counted_on_and_others_are_restarts() -> None:
    once = "".join(printed(FINAL, losses=[x], last=1) for x in LOSSES)
    assert read(once).losses == [(100, 3.0), (200, 2.5), (300, 2.25)]
    again = read(printed(FINAL) + printed(FINAL, losses=LOSSES[:1]))
    assert [(e.kind, e.detail) for _, told in again.fed for e in told] == [(RESUME, {"at": 100})]
    assert read(printed(FINAL, first=11, last=13)).losses[0] == (1100, 3.0)


def test_a_loss_that_is_not_finite_is_read_so() -> None:
    assert read(printed(FINAL, losses=[3.0, float("nan"), float("inf")])).losses[1:] == [
        (200, float("inf")),
        (300, float("inf")),
    ]


def test_of_a_growing_log_the_last_epoch_is_told_once_its_validation_is_done(tmp_path: Path) -> None:
    path = tmp_path / "keras.log"
    path.write_text(printed(DRAWN[0][0], losses=LOSSES[:2], last=3) + "Epoch 3/3\n" + EARLY + LAST)
    with following(path) as followed:
        assert followed.next(2) == [(100, 3.0), (200, 2.5)]
        with path.open("a") as file:
            file.write(FINAL.format(loss=2.25) + " - val_loss: 2.75\n")
        assert followed.next(1) == [(300, 2.25)]
