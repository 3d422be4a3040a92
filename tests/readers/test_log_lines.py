"""Lines as tools and tutorials print them, which no format of their own stands for."""

from __future__ import annotations

import pytest

from stabmon.readers import ReadError
from tests.readers.reading import Read, read

IN_EPOCHS = [(1, 100, 3.0), (1, 200, 2.5), (1, 300, 2.25), (2, 100, 2.0), (2, 200, 1.75), (2, 300, 1.5)]
"""Epoch, step in it, loss."""
ON = [(100 * (i + 1), loss) for i, (*_, loss) in enumerate(IN_EPOCHS)]
FROM_0 = [(step - 100, loss) for step, loss in ON]


def lines(line: str, less: int = 0) -> str:
    return "".join(line.format(e=epoch, s=step - less, l=loss) + "\n" for epoch, step, loss in IN_EPOCHS)


def evaluated(found: Read) -> list[float]:
    return [value for _, value in found.of("eval_loss")]


@pytest.mark.parametrize(
    "line",
    [
        "[{e}, {s:5d}] loss: {l:.3f}",
        "[ {e}, {s:5d}] loss: {l:.3f}",
        "Epoch [{e}][{s}/7330]\tlr: 1.9e-03, eta: 1 day, time: 0.4, loss_cls: 0.9, loss_bbox: 0.1, loss: {l}",
        "01/01 10:00:00 - mmengine - INFO - Epoch(train)  [{e}][{s:4d}/7330]  lr: 1e-3  loss: {l}  loss_cls: 0.9",
        "Train: [{e}/300][{s}/1251]\teta 1:00:00 lr 0.000001\t time 1.1 (1.2)\tloss {l} (9.0)\tgrad_norm 1.2 (1.3)",
        "Epoch: {e} | [{s}/600] | loss {l}",
        "Epoch {e}/9  ━━━╸━━━ {s}/938 0:00:01 • 0:00:05 102.1it/s v_num: 3.000 train_loss: {l}",
        "Epoch {e}:  10%|█  | {s}/938 [00:00<00:05, 15.2it/s, v_num=3, train_loss_step={l}, train_loss_epoch=9.0]",
    ],
    ids=["CIFAR-10", "with a space", "mmdetection", "mmengine", "Swin", "bars", "rich", "Lightning"],
)
def test_steps_that_start_anew_in_each_epoch_go_on(line: str) -> None:
    found = read(lines(line))
    assert found.losses == ON
    assert "Steps start anew in each epoch; they are counted on." in found.notes


@pytest.mark.parametrize(
    "line",
    [
        "Epoch: [{e}][{s:4d}/5005]\tTime  0.5 ( 0.6)\tData  0.0 ( 0.1)\tLoss {l:.4e} (9.0e+00)\tAcc@1   0.00 (  0.20)",
        "Epoch: [{e}]  [{s:>4}/1251]  eta: 1:00:00  lr: 0.000001  loss: {l} (9.0)  time: 1.1  data: 0.5",
        "Train: {e} [{s:>4d}/1251 ({s:>3.0f}%)]  Loss: {l:.3f} (9.0)  Time: 0.456s, 1000/s  LR: 1.000e-06",
        "Train Epoch: {e} [{s}/60000 (1%)]\tLoss: {l:.6f}",
        "epoch: {e}, batch: {s}, loss: {l}",
    ],
    ids=["ImageNet", "DeiT", "timm", "MNIST", "by hand"],
)
def test_what_each_epoch_counts_from_0_goes_on_one_interval_after_the_last(line: str) -> None:
    assert read(lines(line, less=100)).losses == FROM_0


def test_batches_of_an_evaluation_are_none_of_the_training() -> None:
    line = "Epoch: [{e}][{s:4d}/5005]\tLoss {l:.4e} (9.0)"
    tested = "".join(f"Test: [{batch:3d}/196]\tTime  1.0 ( 1.0)\tLoss 8.{batch}e+00 (8.0)\n" for batch in (0, 10, 20))
    found = read(lines(line) + tested)
    assert (found.losses, evaluated(found)) == (ON, [])


def test_a_heading_names_the_epoch_of_the_steps_below_it() -> None:
    """PyTorch's quickstart, and its page on training."""
    quick, training = [], []
    for epoch, step, loss in IN_EPOCHS:
        new = step == 100
        quick += [f"Epoch {epoch}", "-" * 31] if new else []
        quick += [f"loss: {loss:>7f}  [{step - 100:>5d}/60000]"]
        training += [f"EPOCH {epoch}:"] if new else []
        training += [f"  batch {step} loss: {loss}"]
        training += [f"LOSS train {loss} valid {epoch + 6.0}"] if step == 300 else []
    assert read("\n".join(quick)).losses == FROM_0
    found = read("\n".join(training))
    assert (found.losses, evaluated(found)) == (ON, [7.0, 8.0])


@pytest.mark.parametrize(
    "line",
    [
        "epoch {s} loss_train: {l} loss_val: 7.0",
        "Epoch {s}: val_loss=7.0, train_loss={l}",
        "epoch {s}: loss (train) = {l}, loss (val) = 7.0",
        "step {s} | loss_train: {l} | loss_test: 7.0",
        "step {s}: best_loss=0.5 val_loss=7.0 nll_loss=6.5 loss={l}",
        "[{s:05d}/10000] train_loss: {l:.4f} val_loss: 7.0",
    ],
)
def test_the_trainings_loss_and_the_evaluations_in_any_order_of_words(line: str) -> None:
    found = read("".join(line.format(s=step, l=loss) + "\n" for step, loss in ON))
    assert (found.losses, evaluated(found)) == (ON, [7.0] * len(ON))


@pytest.mark.parametrize(
    "line",
    [
        "Steps:   0%|          | {s}/10000 [00:01<2:00:00,  1.2it/s, lr=1e-5, step_loss={l}]",
        "train          Epoch   0:   1%|#| {s}/1000 [00:01<00:10, 1.0ba/s, loss/train/total={l}]",
        "Step... ({s} | Loss: {l}, Learning Rate: 0.001)",
        "[2020-01-01 10:00:00,123 INFO] Step {s}/100000; acc:  10.5; ppl: 1000.1; xent: {l}; lr: 0.00012; 10 sec;",
        "01/01 10:00:00 - mmengine - INFO - Iter(train) [{s:6d}/80000]  lr: 1e-3  time: 0.4  loss: {l}",
    ],
    ids=["diffusers", "Composer", "Flax", "OpenNMT", "mmengine"],
)
def test_a_step_and_a_loss_by_other_words(line: str) -> None:
    assert read("".join(line.format(s=step, l=loss) + "\n" for step, loss in ON)).losses == ON


def test_a_line_about_a_validation_is_no_step_of_the_training() -> None:
    """fairseq; where every line speaks of a test, as in a path, none is an evaluation."""
    line = "| train_inner | epoch 001: {s} / 1000 loss={l}, nll_loss=9.9, num_updates={s}, lr=1e-05, gnorm=2.5"
    text = "".join(line.format(s=step, l=loss) + "\n" for step, loss in ON)
    found = read(text + "| valid | epoch 001 | valid on 'valid' subset | loss 9.1 | num_updates 600\n")
    assert found.losses == ON
    assert found.of("eval_loss") == [(600, pytest.approx(9.1, rel=1e-6))]
    assert read("".join(f"/test/run.py: {row}\n" for row in text.splitlines())).losses == ON


@pytest.mark.parametrize("line", ["Fold [1/5] Epoch {s} loss {l}", "Epoch [{s}/900] loss {l}"])
def test_a_count_of_something_else_beside_an_epoch_is_no_step(line: str) -> None:
    found = read("".join(line.format(s=step, l=loss) + "\n" for step, loss in ON))
    assert found.losses == ON
    assert "epochs stand for steps" in found.notes


def test_one_json_document_in_a_line_is_no_line_of_a_log() -> None:
    with pytest.raises(ReadError, match="holds no losses"):
        read('{"note": "step 1 loss 3.0, step 2 loss 2.5"}')
