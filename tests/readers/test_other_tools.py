"""Lines of tools that have a format of their own, where they differ from those of `made`."""

from __future__ import annotations

import json

import pytest

from stabmon.readers import ReadError
from tests.readers.made import ONES, loss
from tests.readers.made_more import espnet, nemo, spacy
from tests.readers.reading import read

LOSSES = [(10 * i, loss) for i, loss in enumerate([3.0, 2.5, 2.25, 2.0], 1)]


def lines(line: str) -> str:
    return "".join(line.format(s=step, l=loss) + "\n" for step, loss in LOSSES)


@pytest.mark.parametrize(
    ("line", "form"),
    [
        (
            "I0101 10:00:00.1 140 logging_writer.py:48] [{s}] learning_rate=0.001, train_loss={l}, x=1",
            "log of few words",
        ),
        ("1m 5s (- 0m 10s) ({s} 6%) {l:.4f}", "log of few words"),
        ("{s:7d}/ 200000: {l:.4f}", "log of few words"),
        ("[{s} | 10.05] loss={l:.2f} avg=9.00", "log of few words"),
        ("{s} train {l:.6f}", "llm.c log"),
        ("step {s:05d}/21400 (0.01%) | loss: {l:.6f} | grad norm: 0.5000 | lrm: 1.00 | dt: 500ms", "llm.c log"),
    ],
    ids=["metric writer", "tutorial on sequences", "makemore", "gpt-2", "build-nanogpt", "nanochat"],
)
def test_lines_of_few_words(line: str, form: str) -> None:
    found = read(lines(line))
    assert (found.recording.format, found.losses) == (form, LOSSES)


def test_the_norm_of_nanochat_and_the_evaluations_of_build_nanogpt_and_makemore() -> None:
    row = "step {s:05d}/21400 (0.01%) | loss: {l:.6f} | grad norm: 0.5000 | lrm: 1.00 | dt: 500ms"
    assert read(lines(row)).of("total_grad_norm") == [(step, 0.5) for step, _ in LOSSES]
    assert read(lines("{s} train {l:.6f}\n{s} hella 0.25\n{s} val 7.0000")).of("eval_loss")[0] == (20, 7)
    assert read(lines("step {s} | loss {l} | step time 9ms\nstep {s} train loss: 9 test loss: 7")).of("eval_loss")[
        0
    ] == (20, 7)


def test_the_training_loss_at_evaluations_is_read_where_there_is_no_other() -> None:
    """As nanoGPT's smallest descendant prints; nanoGPT itself prints both."""
    row = "step {s}: train loss {l:.4f}, val loss 7.0000"
    found = read(lines(row))
    assert found.losses == LOSSES
    assert found.of("eval_loss") == [(step, 7) for step, _ in LOSSES]
    assert "No line tells the loss of a step; that of the training at evaluations is read." in found.notes
    both = read(lines(row.replace("{l:.4f}", "9.0000") + "\niter {s}: loss {l:.4f}, time 12ms"))
    assert (both.losses, both.notes) == (LOSSES, "")


def test_ms_swift_tells_the_step_in_the_row() -> None:
    row = "{{'loss': {l}, 'memory(GiB)': 63.16, 'epoch': 0.89, 'global_step/max_steps': '{s}/176', 'percentage': '4%'}}"
    assert read(lines(row)).losses == LOSSES
    rows = [{"loss": loss, "epoch": 0.1, "global_step/max_steps": f"{step}/176"} for step, loss in LOSSES]
    assert read("".join(json.dumps(row) + "\n" for row in rows)).losses == LOSSES


def test_a_trainers_row_that_begins_with_other_metrics_is_one() -> None:
    found = read(lines("{{'reward': 0.1, 'kl': 0.01, 'loss': {l}, 'grad_norm': 0.5, 'epoch': 0.{s}}}"))
    assert found.recording.format == "Hugging Face trainer log"
    assert found.losses == [(i, loss) for i, (_, loss) in enumerate(LOSSES, 1)]
    assert read(lines("{{'epoch': 3, 'step': {s}, 'loss': {l}}}")).losses == LOSSES


def test_nemos_validation_loss_is_the_last_ones_and_no_evaluation() -> None:
    found = read(nemo().text)
    assert (found.of("eval_loss"), found.losses[25][0]) == ([], 25)


def test_espnets_batches_go_on_over_epochs_and_its_results_tell_the_validation() -> None:
    results = "[h] INFO: 2epoch results: [train] iter_time=1e-4, loss=9.5, [valid] loss_ctc=9, loss=7.0, acc=0.5\n"
    found = read(f"{espnet().text}\n{results}")
    assert found.losses[20] == (210, pytest.approx(loss(20), rel=1e-6))
    assert found.of("eval_loss") == [(400, 7)]


def test_of_spacys_parts_one_is_read_and_another_can_be_named() -> None:
    found = read(spacy().text)
    assert "Loss read from 'LOSS NER', step from 'step'." in found.notes
    assert "Other columns that may be a loss: LOSS TOK2VEC" in found.notes
    assert read(spacy().text, loss="LOSS TOK2VEC").losses == [(10 * i, 0.5) for i in ONES]
    with pytest.raises(ReadError, match="give one of these as --loss: epoch, step, LOSS TOK2VEC, LOSS NER"):
        read(spacy().text, loss="loss")


@pytest.mark.parametrize(
    "line",
    [
        "step {s}: loss = tensor({l}, device='cuda:0', grad_fn=<NllLossBackward0>)",
        "it={s}, loss={l}",
        "Iteration #{s}: loss {l}",
        "Loss at step {s:03d}: {l:.3f}",
        "Training loss (for 1 batch) at step {s}: {l:.4f}",
    ],
)
def test_other_ways_to_write_a_step_and_a_loss(line: str) -> None:
    assert read(lines(line)).losses == LOSSES


def test_steps_in_thousands_and_steps_of_another_line_are_not_steps() -> None:
    for line in ("step {s}k loss {l}", "- step: {s}\n  loss: {l}"):
        with pytest.raises(ReadError, match="holds no losses"):
            read(lines(line))


def test_losses_alone_are_counted_and_that_is_told() -> None:
    found = read("device: cpu\n" + lines("train loss {l}, val loss 7.0"))
    assert found.losses == [(i, loss) for i, (_, loss) in enumerate(LOSSES, 1)]
    assert [value for _, value in found.of("eval_loss")] == [7] * 4
    assert "There is no step; lines with a loss are counted instead." in found.notes
    with pytest.raises(ReadError, match="holds no losses"):
        read("a\nb\nc\nd\ne\n" + lines("loss {l}"))
