import math
from pathlib import Path

import pytest
import torch

from stabmon.bench.exact.compare import Cell, relative_error
from stabmon.bench.exact.estimates import Pool
from stabmon.bench.exact.screen import conclusion, markdown, write

NAN, INF = math.nan, math.inf
CELLS = [
    Cell("GPT", "plain", "fp32", "loss", 3e-7, 1e-4),
    Cell("GPT", "plain", "bf16 autocast", "loss", 2e-3, 1e-4, "step 1: 2 read, 2.004 due"),
    Cell("GPT", "plain", "fp32", "eval_loss", None, None, "this loop evaluates nothing"),
]


@pytest.mark.parametrize(
    ("read", "due", "error"),
    [
        (1.5, 1.0, 0.5),
        (0.5, -1.0, 1.5),
        (3e-6, 0.0, 3.0),
        (NAN, NAN, None),
        (NAN, 2.0, 1.0),
        (2.0, NAN, 1.0),
        (INF, INF, 0.0),
        (INF, 2.0, 1.0),
        (2.0, INF, 1.0),
    ],
)
def test_a_value_that_only_one_side_has_is_wholly_wrong(read: float, due: float, error: float | None) -> None:
    assert relative_error(read, due, 1e-6) == (None if error is None else pytest.approx(error))


def test_estimates_that_are_right_in_the_mean_pass_and_half_as_large_ones_do_not() -> None:
    squares = torch.randn(200, 5, 4, generator=torch.Generator().manual_seed(0)).square().mean(-1)
    right, small = Pool(), Pool()
    for draw, of_step in enumerate(squares.tolist()):
        right.add("output_change_ratio", draw, [square**0.5 for square in of_step])
        small.add("output_change_ratio", draw, [(square / 2) ** 0.5 for square in of_step])
    error, allowed, _ = right.judged("output_change_ratio")
    assert allowed == pytest.approx(4 * math.sqrt(2 / 4 / 200))
    assert error < allowed
    assert small.judged("output_change_ratio")[0] > allowed


def test_the_sum_counts_what_is_compared_undefined_and_wrong() -> None:
    assert conclusion(CELLS) == (
        "3 cells of 2 trainings: 2 compared, 1 not defined, 1 beyond their tolerance. "
        "Worst: 2.0e-03 of 1e-04 allowed, loss, GPT / plain / bf16 autocast."
    )


def test_the_summary_is_one_row_for_each_statistic() -> None:
    rows = [line for line in markdown(CELLS).splitlines() if line.startswith("| `")]
    assert rows == [
        "| `loss` | 3e-07 | 2e-03 |  |  |  | 2 | 0 |",
        "| `eval_loss` | not defined |  |  |  |  | 1 | 1 |",
    ]


def test_the_summary_goes_between_the_marks_of_a_page(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("Before\n\n<!-- table -->\nold\n<!-- end of table -->\nAfter\n")
    write(page, "new\n")
    write(page, "new\n")
    assert page.read_text() == "Before\n\n<!-- table -->\nnew\n<!-- end of table -->\nAfter\n"


def test_a_page_without_marks_is_refused(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("My notes")
    with pytest.raises(ValueError, match=r"page\.md has no line <!-- table -->; .* are to be on it"):
        write(page, "new")
    assert page.read_text() == "My notes"
