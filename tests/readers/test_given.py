"""Rows of a table that somebody holds -> snapshots."""

import numpy as np
import pytest

from stabmon.readers.table import given
from stabmon.records import RESUME

INF = float("inf")


def rows(*cells: str, columns: str = "step,loss,grad_norm,lr,eval_loss") -> list[dict[str, str]]:
    return [dict(zip(columns.split(","), row.split(","), strict=True)) for row in cells]


def test_a_blank_is_not_read_and_nan_is_read_and_not_finite() -> None:
    (first, _), (second, _) = given(rows("1,nan,,1e-3,", "2,2.5,inf,,"))
    assert (first.step, first.scalar("loss")) == (1, INF)
    assert np.isnan(first.scalar("total_grad_sq"))
    assert (second.scalar("loss"), second.scalar("total_grad_norm")) == (2.5, INF)
    assert np.isnan(second.scalar("learning_rate"))


def test_an_evaluation_goes_with_the_next_loss() -> None:
    fed = list(given(rows("1,3,,,", "1,,,,2.9", "2,2.8,,,")))
    assert [s.step for s, _ in fed] == [1, 2]
    assert [s.scalar("loss") for s, _ in fed] == pytest.approx([3, 2.8])
    assert [s.scalar("eval_loss") for s, _ in fed] == pytest.approx([float("nan"), 2.9], nan_ok=True)


def test_a_step_that_goes_back_is_told_as_a_resume() -> None:
    fed = list(given(rows("100,3,,,", "200,2,,,", "100,3,,,")))
    assert [[(e.kind, e.detail) for e in events] for _, events in fed] == [[], [], [(RESUME, {"at": 100})]]


def test_another_column_can_be_the_loss() -> None:
    ((only, _),) = given(rows("1,,,,2.9"), loss="eval_loss")
    assert only.scalar("loss") == pytest.approx(2.9)


def test_finite_values_that_float32_cannot_hold_stay_finite() -> None:
    ((only, _),) = given(rows("1,1e300,1e30,,"))
    assert np.isfinite(only.values[:2]).all()


@pytest.mark.parametrize("cells", [("1,x,,,",), ("one,2,,,",)])
def test_a_cell_that_is_no_number_is_named_with_its_row(cells: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match=r"row 2: .*give numbers in the columns step, loss, grad_norm, lr"):
        list(given(rows("0,3,,,", *cells)))


def test_a_missing_column_of_steps_is_named() -> None:
    with pytest.raises(ValueError, match="row 1: it has no step"):
        list(given([{"loss": "3"}]))
