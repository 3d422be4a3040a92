"""Tables as people save them: columns that come twice, commas at the ends of rows, quotes, parts of steps."""

from __future__ import annotations

import pytest

from stabmon.readers import ReadError
from tests.readers.reading import read

LOSSES = [3.0, 2.5, 2.25, 2.0]
READ = list(enumerate(LOSSES, 1))


def table(header: str, row: str, count: int = 4) -> str:
    """`row` with i and loss filled in, beneath the header."""
    rows = [row.format(i=i, loss=loss) for i, loss in READ[:count]]
    return "\n".join([header, *rows]) + "\n"


@pytest.mark.parametrize(
    ("header", "row"),
    [
        ("step,loss", "{i},{loss},"),
        ("step;loss", "{i};{loss};;"),
        ("step,loss,loss", "{i},{loss},9"),
        ("step,loss,x,x", "{i},{loss},1,2"),
        ("step,loss,,,", "{i},{loss},,,"),
        ("loss", "{loss}"),
        ("step,loss,note", '{i},{loss},a 5" pipe'),
        ("step,loss,note", '{i},{loss},"two\nlines, ""quoted"""'),
    ],
    ids=["comma at the end", "more at the end", "loss twice", "another twice", "no names", "alone", "inch", "quoted"],
)
def test_every_row_is_read(header: str, row: str) -> None:
    assert read(table(header, row)).losses == READ


def test_a_column_that_comes_again_can_be_named() -> None:
    twice = table("step,loss,loss", "{i},9,{loss}")
    assert read(twice, loss="loss.1").losses == READ
    assert "Other columns that may be a loss: loss.1;" in read(twice).notes
    again = read(twice + twice, loss="loss.1")
    assert "left out" not in again.notes


def test_a_quote_that_does_not_end_takes_no_row_with_it() -> None:
    found = read('step,loss,note\n1,3.0,\n2,2.5,"x\n3,2.25,\n4,2.0,y\n')
    assert found.losses == READ
    assert "A quote in '2,2.5,\"x' does not end; it was taken for none." in found.notes


@pytest.mark.parametrize("options", [{}, {"step": "step"}])
def test_parts_of_steps_are_counted_and_told(options: dict[str, str]) -> None:
    found = read(table("step,loss", "0.{i},{loss}"), **options)
    assert found.losses == READ
    assert "'step' counts in parts of a step, so it is not read." in found.notes
    assert read(table("step,loss", "{i}.0,{loss}"), **options).losses == READ


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (table("step,loss", "2026-01-0{i},{loss}"), "could not convert string to float: '2026-01-01'"),
        (table("step,loss", "inf,{loss}"), "4 rows were left out because they could not be read; the first is line 2"),
        ('{"step": 1, "loss": [3]}\n', r"'\[3\]' is no number"),
        (table("step,loss", "{i},{loss}%"), "its columns are step, loss; name the one of the loss, if it holds numb"),
        (table("Time,Step,Value", "1,{i},{loss}"), "its columns are Time, Step, Value; name the one of"),
        (table("step,loss,acc", "{i},{loss}"), "its first line names 3 columns, and the next has 2; make them as many"),
        (table("step,loss", "{i},2,5"), "names 2 columns, and the next has 3.*part the columns by semicolons"),
        ("1,2.5\n2,2.4\n", "has no line that names its columns; put one first, such as step,loss"),
    ],
    ids=["dates", "no step", "lists", "percent", "unknown", "fewer", "commas", "no header"],
)
def test_a_refusal_says_what_is_wrong_with_the_table(text: str, said: str) -> None:
    with pytest.raises(ReadError, match=said):
        read(text)


def test_a_row_with_too_few_or_too_many_cells_is_told_in_numbers() -> None:
    found = read(table("step,loss", "{i},{loss}") + "98\n99,2.5,7\n")
    assert found.losses == READ
    left_out = f"2 rows were left out because they could not be read; the first is line {len(READ) + 2}"
    assert f"{left_out}: it has 1 cell, the table 2 columns." in found.notes


@pytest.mark.parametrize(("option", "said"), [("step", "leave --step out"), ("run", "leave the run's name out")])
def test_what_a_log_has_not_is_refused_and_not_passed_over(option: str, said: str) -> None:
    lines = "".join(f"step {i}: loss {loss}\n" for i, loss in READ)
    with pytest.raises(ReadError, match=f"'nope'.*{said}"):
        read(lines, **{option: "nope"})


CARD = """# A model

| Key | Value |
|-----|-------|
| lr  | 5e-05 |

| Training Loss | Epoch | Step | Validation Loss |
|:-------------:|:-----:|:----:|:---------------:|
| No log        | 1.0   | 100  | 9.0             |
| 3.0           | 2.0   | 200  | 8.0             |
| 2.5           | 3.0   | 300  | 7.0             |

| Framework | Loss |
|---|---|
| torch | 1 |
"""


def test_the_table_of_a_model_card_is_read() -> None:
    found = read(CARD)
    assert (found.recording.format, found.losses) == ("Markdown table", [(200, 3.0), (300, 2.5)])
    assert found.of("eval_loss") == [(200, 8.0), (300, 7.0)]
    assert read(CARD, loss="Validation Loss").losses == [(100, 9.0), (200, 8.0), (300, 7.0)]
    with pytest.raises(
        ReadError, match="has no 'nope'; give one of these as --loss: Training Loss, Epoch, Step, Valid"
    ):
        read(CARD, loss="nope")


def test_fairseq_counts_updates() -> None:
    assert read("".join(f"| epoch 001: 9 / 99 loss={x}, num_updates={i}, lr=0.1\n" for i, x in READ)).losses == READ


def test_the_newest_row_first_is_told_as_no_order_of_restarts() -> None:
    backwards = "step,loss\n" + "".join(f"{step},2.0\n" for step in range(30, 0, -1))
    assert "Steps go back 29 times in all; if these are no restarts, sort the file by step." in read(backwards).notes
