"""What logs of the same format differ in."""

from __future__ import annotations

import json
from math import inf

import pytest

from stabmon.readers import ReadError
from stabmon.records import EVALUATION, RESUME
from tests.readers.made import loss, trainer_state, wandb_export
from tests.readers.reading import read

INF = inf


def state(*rows: dict[str, object]) -> str:
    return json.dumps({"log_history": list(rows)})


@pytest.mark.parametrize("cell", ["NaN", "Infinity", "-Infinity", '"nan"', '"NaN"', '"inf"'])
def test_not_finite_in_json(cell: str) -> None:
    text = f'{{"log_history": [{{"loss": 2.5, "step": 1}}, {{"loss": {cell}, "grad_norm": {cell}, "step": 2}}]}}'
    found = read(text)
    assert found.losses == [(1, 2.5), (2, INF)]
    assert found.of("total_grad_norm") == [(2, INF)]


@pytest.mark.parametrize("cell", ["nan", "NaN", "inf", "-inf", '"nan"'])
def test_not_finite_in_tables(cell: str) -> None:
    assert read(f"step,loss\n1,2.5\n2,{cell}\n").losses == [(1, 2.5), (2, INF)]


def test_a_row_that_lacks_its_loss_after_twenty_that_had_one_hides_a_nan() -> None:
    rows = [f"{i},{3 - i / 50},0.01" for i in range(1, 31)]
    found = read("\n".join(["step,loss,lr", *rows, "31,,0.01", "32,,0.01"]))
    assert found.losses[-3:] == [(30, pytest.approx(2.4)), (31, INF), (32, INF)]


STEADY = "".join(f"a,{10 * i},{3 - i / 50},,0.5\n" for i in range(1, 31))


@pytest.mark.parametrize(
    ("rows", "spoiled"),
    [
        ("a,310,,,\n", []),  # the last row of a table may be its end
        ("a,310,,,\na,320,,,\na,330,,,\n", [310, 320]),
        ("a,310,,,\na,320,2,,0.5\n", [310]),
        ("a,317,,,\na,326,2,,0.5\n", []),  # not where the next loss is due: a row of something else
        ("a,310,,3.5,\na,320,2,,0.5\n", []),
        ("a,310,,3.5,\na,310,,,\n", []),  # nor beside an evaluation of that step
        ("a,310,,3.5,\na,310,,,\na,320,2,,0.5\n", []),
    ],
)
def test_a_row_with_nothing_in_it_hides_a_nan_where_a_loss_is_due_and_more_comes(rows: str, spoiled: list[int]) -> None:
    losses = read(f"name,step,loss,val_loss,grad_norm\n{STEADY}{rows}").losses
    assert [step for step, loss in losses if loss == INF] == spoiled


def test_a_table_that_logs_its_loss_in_every_fifth_row_hides_nothing() -> None:
    rows = [f"{i},{3 if i % 5 == 0 else ''},0.01" for i in range(1, 301)]
    assert read("\n".join(["step,loss,lr", *rows])).losses == [(i, 3) for i in range(5, 301, 5)]


def test_rows_of_other_metrics_hide_nothing() -> None:
    rows = [f"{i},2.5,," for i in range(1, 31)] + ["30,,,0.5", "30,,3.5,"]
    assert len(read("\n".join(["step,train_loss_step,val_loss,epoch_time", *rows])).losses) == 30


def test_zeros_that_a_trainer_writes_for_nan_are_told_with_the_reason() -> None:
    rows = [{"loss": 2.5, "grad_norm": 1.0, "step": i} for i in range(1, 5)]
    found = read(state(*rows, {"loss": 0.0, "grad_norm": float("nan"), "step": 5}))
    assert found.losses[-1] == (5, 0)
    assert "exactly 0 around step 5" in found.notes
    assert "logging_nan_inf_filter" in found.notes
    without = read(state(*rows, *({"loss": 0.0, "step": i} for i in (5, 6))))
    assert "exactly 0 around step 6" in without.notes


def test_a_loss_that_is_learnt_to_zero_hides_nothing() -> None:
    rows = [{"loss": 10.0**-i, "grad_norm": 10.0**-i, "step": i} for i in range(1, 8)]
    assert "exactly 0" not in read(state(*rows, *({"loss": 0.0, "grad_norm": 1e-9, "step": i} for i in (8, 9)))).notes


def test_rows_of_one_step_are_united() -> None:
    lines = ["step,lr-AdamW,train_loss_step,epoch", "49,0.1,,0", "49,,2.5,0", "99,0.2,,0", "99,,2.25,0"]
    found = read("\n".join(lines))
    assert found.losses == [(49, 2.5), (99, 2.25)]
    assert found.of("learning_rate") == [(49, pytest.approx(0.1)), (99, pytest.approx(0.2))]


def test_several_losses_of_a_step_are_averaged_and_told() -> None:
    found = read("step,loss\n1,2\n1,4\n1,6\n2,3\n")
    assert found.losses == [(1, 4), (2, 3)]
    assert "Several losses of one step, 2 times" in found.notes


def test_one_of_several_losses_that_is_not_finite_spoils_the_step() -> None:
    assert read("step,loss\n1,2\n1,nan\n1,6\n2,3\n").losses == [(1, INF), (2, 3)]


def test_of_several_ranks_one_is_read() -> None:
    lines = [f"[rank{rank}]: iter {i}: loss {3 + rank:.4f}, time 1ms" for i in range(3) for rank in (1, 0)]
    found = read("\n".join(lines))
    assert found.losses == [(0, 4), (1, 4), (2, 4)]
    assert "those of rank 1 are read" in found.notes


def test_a_restart_inside_a_file_is_an_event() -> None:
    found = read("step,loss\n100,3\n200,2.5\n150,2.75\n200,2.5\n")
    events = [(event.kind, dict(event.detail)) for _, told in found.fed for event in told]
    assert events == [(RESUME, {"at": 150})]
    assert "After step 200 comes step 150" in found.notes


def test_steps_that_start_anew_in_each_epoch_are_counted_on() -> None:
    found = read("epoch,batch,loss\n1,100,3\n1,200,2.5\n2,100,2.25\n2,200,2\n3,100,1.75\n")
    assert found.losses == [(100, 3), (200, 2.5), (300, 2.25), (400, 2), (500, 1.75)]
    assert not any(told for _, told in found.fed)
    assert "Steps start anew in each epoch" in found.notes


def test_an_evaluation_goes_with_the_next_loss_and_is_an_event() -> None:
    found = read("step,loss,eval_loss\n1,3,\n1,,2.75\n2,2.5,\n2,,2.25\n")
    assert found.of("eval_loss") == [(2, 2.75), (2, 2.25)]
    assert found.losses == [(1, 3), (2, 2.5)]
    events = [(event.kind, event.step, dict(event.detail)) for _, told in found.fed for event in told]
    assert events == [(EVALUATION, 2, {"eval_loss": 2.75}), (EVALUATION, 2, {"eval_loss": 2.25})]


def test_an_evaluation_that_begins_late_is_found() -> None:
    rows = [{"loss": 2.5, "step": i} for i in range(1, 1001)]
    assert read(state(*rows, {"eval_loss": 2.75, "step": 1000})).of("eval_loss") == [(1000, 2.75)]


def test_evaluations_alone_are_read_as_the_loss() -> None:
    rows = "\n".join(f"{i},,{4 - i / 10}" for i in range(10))
    assert len(read(f"step,loss,val_loss\n{rows}\n").losses) == 10
    lines = "\n".join(f"step:{i}/10 val_loss:{4 - i / 10:.4f} train_time:1ms step_avg:1ms" for i in range(10))
    found = read(lines)
    assert found.losses[0] == (0, 4)
    assert "evaluations only" in found.notes


def test_without_a_step_losses_are_counted() -> None:
    found = read('{"loss": 3}\n{"loss": 2.5}\n{"eval_loss": 2.75}\n{"loss": 2}\n')
    assert found.losses == [(1, 3), (2, 2.5), (3, 2)]
    assert "There is no step" in found.notes


def test_epochs_stand_for_steps_where_each_has_one_loss() -> None:
    assert read("epoch,accuracy,loss,val_loss\n0,0.5,3,3.5\n1,0.6,2,2.5\n").losses == [(0, 3), (1, 2)]


def test_losses_summed_over_accumulated_batches_are_recognised() -> None:
    rows = [row for i in range(1, 9) for row in ({"loss": 16 - i, "step": i}, {"eval_loss": 2 - i / 8, "step": i})]
    assert "about 8 times the evaluation's at all 8 evaluations" in read(state(*rows)).notes


@pytest.mark.parametrize("jump", [1e6, 1e30, 1e38, 1e300])
def test_jumps_of_any_size_stay_finite(jump: float) -> None:
    found = read(f"step,loss,grad_norm\n1,2,1\n2,{jump},{jump}\n")
    assert found.losses[1][1] == pytest.approx(min(jump, 3.4028235e38), rel=1e-6)
    assert found.of("total_grad_sq")[1][1] < INF


def test_a_tiny_gradient_is_not_zero() -> None:
    assert read("step,loss,grad_norm\n1,2,1e-25\n2,2,0\n").of("total_grad_sq") == [
        (1, pytest.approx(1.1754944e-38)),
        (2, 0),
    ]


def test_columns_are_told_and_can_be_named() -> None:
    text = "n,value,step_of_mine,loss_a,loss_b\n0,5,10,3,4\n1,6,20,2,3\n"
    found = read(text)
    assert "Loss read from 'loss_a', steps counted" in found.notes
    assert "Other columns that may be a loss: loss_b" in found.notes
    assert read(text, loss="loss_b", step="step_of_mine").losses == [(10, 4), (20, 3)]
    assert read(text, loss="value", step="n").losses == [(0, 5), (1, 6)]
    with pytest.raises(ReadError, match="has no 'z'; give one of these as --loss: n, value, step_of_mine"):
        read(text, loss="z")


def test_a_log_can_be_read_by_its_evaluations() -> None:
    text = "step 0: train loss 3.0, val loss 3.5\niter 0: loss 3.0, time 1ms\nstep 5: train loss 2.0, val loss 2.5\n"
    assert read(text, loss="eval_loss").losses == [(0, 3.5), (5, 2.5)]
    with pytest.raises(ReadError, match="a nanoGPT log has no 'accuracy'; it has eval_loss and loss"):
        read(text, loss="accuracy")


def test_nested_keys_are_joined() -> None:
    found = read('{"iter": 1, "train": {"loss": 3, "lr": 0.5}}\n{"iter": 2, "train": {"loss": 2, "lr": 0.25}}\n')
    assert found.losses == [(1, 3), (2, 2)]
    assert found.of("learning_rate") == [(1, 0.5), (2, 0.25)]


def test_something_before_the_brace_is_passed_over() -> None:
    text = '2025-01-01 INFO root: {"step": 1, "loss": 3}\nhello\n2025-01-01 INFO root: {"step": 2, "loss": 2}\n'
    assert read(text).losses == [(1, 3), (2, 2)]


def test_every_run_of_an_export_can_be_read() -> None:
    text = wandb_export().text
    found = read(text)
    assert (found.recording.run.name, found.recording.others) == ("second run", ("first run",))
    other = read(text, run="first run")
    assert (other.recording.run.name, other.losses[0], len(other.losses)) == ("first run", (0, 2 * loss(0)), 20)
    assert read(text, loss="first run - train/loss").losses == other.losses
    with pytest.raises(ReadError, match="no run 'third'; it has: second run, first run"):
        read(text, run="third")


def test_only_what_is_whole_is_read_of_a_state_that_is_cut_off() -> None:
    text = trainer_state().text
    found = read(text[: text.index('"step": 200') + 5])
    assert found.losses[-1] == (190, pytest.approx(loss(18)))
    assert "cut off or damaged after entry 19" in found.notes


def test_a_header_that_comes_again_is_no_row() -> None:
    found = read("step,loss\n1,3\n2,2.5\nstep,loss\n1,3\n")
    assert found.losses == [(1, 3), (2, 2.5), (1, 3)]
    assert "left out" not in found.notes


def test_rows_that_cannot_be_read_are_counted() -> None:
    found = read("step,loss\n1,3\ntwo,2.5\n3,x\n4,2\n4,2,9\n")
    assert found.losses == [(1, 3), (4, 2)]
    assert "3 rows were left out" in found.notes


def test_quoted_cells_may_hold_commas_and_lines() -> None:
    assert read('step,loss,note\n1,3,"a, b"\n2,2.5,"two\nlines"\n3,2,""\n').losses == [(1, 3), (2, 2.5), (3, 2)]


def test_latin_1_is_read() -> None:
    assert read("étape;step;loss\n".encode("latin-1") + b"0;1;3\n\xe9;2;2.5\n").losses == [(1, 3), (2, 2.5)]


def test_of_several_runs_in_a_table_one_is_read() -> None:
    text = "run_id,step,loss\na,1,3\na,2,2.5\nb,1,7\nb,2,6\n"
    found = read(text)
    assert (found.recording.run.name, found.recording.others, found.losses) == ("a", ("b",), [(1, 3), (2, 2.5)])
    assert "Several runs, told apart by 'run_id'; 'a' is read." in found.notes
    assert read(text, run="b").losses == [(1, 7), (2, 6)]
    with pytest.raises(ReadError, match="holds no loss"):
        read(text, run="c")
    with pytest.raises(ReadError, match="no column that tells runs apart"):
        read("step,loss\n1,2\n", run="c")


@pytest.mark.parametrize(
    ("text", "losses"),
    [
        ("step;loss\n1;4,1234\n2;3,125\n3;2,5e-1\n", [4.1234, 3.125, 0.25]),
        ('step;loss\n1;"4,25"\n2;"1,5"\n', [4.25, 1.5]),
        ('step,loss\n1,"3,000.5"\n2,"2,5"\n', [3000.5, 2.5]),
        ("step\tloss\n1\t2,75\n2\t1,50\n", [2.75, 1.5]),
        ("iter 0: loss 1,234.5, time 1ms\niter 1: loss 3,, time 1ms\n", [1234.5, 3]),
    ],
)
def test_a_comma_is_a_point_or_parts_thousands(text: str, losses: list[float]) -> None:
    assert [loss for _, loss in read(text).losses] == pytest.approx(losses, rel=1e-6)


def test_a_number_with_both_in_the_other_order_is_left_out() -> None:
    assert read("step;loss\n1;2,5\n2;3.000,5\n3;2,25\n").losses == [(1, 2.5), (3, 2.25)]


def test_zeros_that_hide_nan_are_told_once_and_counted() -> None:
    rows = "".join(f'{{"step": {i}, "loss": {3 if i < 20 else 0}, "grad_norm": NaN}}\n' for i in range(60))
    notes = read(rows).notes
    assert notes.count("The loss is exactly 0") == 1
    assert "around step 20" in notes
    assert "Zeros in place of a loss, 40 times in all." in notes


def test_a_loss_that_megatron_leaves_out_without_a_skip_was_not_finite() -> None:
    def line(step: int, loss: str, skipped: int) -> str:
        tail = f"loss scale: 1.0 | number of skipped iterations: {skipped:3d} | number of nan iterations:   0 |"
        return f" iteration {step:8d}/    1000 | learning rate: 1.000E-04 |{loss} {tail}"

    found = read("\n".join([line(1, "", 0), line(2, " lm loss: 2.5 |", 0), line(3, "", 1), line(4, "", 0)]))
    assert found.losses == [(2, 2.5), (4, INF)]


@pytest.mark.parametrize(
    "line",
    [
        "iter 7 step 3: loss 3.5, iter time: 1069.53ms",
        "iter 7 | step 3: loss 3.5, iter time: 263.85 ms (optimizer.step)",
        "Ep 1 | iter 7 | stEp 3: loss train (curr): 3.5, val (prev val iter): None | iter time: 298.27 ms",
        "7 | loss 3.5 | lr 4.900000e-05 | 8060.78ms | mfu 0.21%",
        "iter 7: loss 3.5, ppl 33.1, time 3286.79ms, mfu -100.00%",
        "[titan] 2025-02-24 19:46:17,508 - root - INFO - step:  7  loss:  3.50000  grad_norm: 26.6250  memory: 6GiB",
        "Training Epoch: 1 Training Iteration: 7  step_loss : 3.5  learning_rate : 1.58e-05 ",
    ],
)
def test_lines_as_tools_have_written_them_over_the_years(line: str) -> None:
    assert read(f"hello\n{line}\n{line}\n{line}\n").losses[0] == (7, 3.5)


def test_a_line_of_colours_alone_is_none() -> None:
    lines = [f"iter {i}: loss {3 - i / 50:.4f}, time 10.00ms, mfu 1.00%\n\x1b[0m\n" for i in range(1, 31)]
    found = read("".join([*lines, "\x1b[31m\x1b[0m"]))
    assert [step for step, _ in found.losses] == list(range(1, 31))
