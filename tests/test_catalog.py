import re

import numpy as np
import pytest

from stabmon.catalog import FLOOR_SQ, PARTS, STATISTICS, Array, Statistic
from stabmon.records import Layout, Snapshot

STORED = [row for row in STATISTICS.values() if not row.of]
DERIVED = [row for row in STATISTICS.values() if row.of]


def derive(statistic: str, *parts: float) -> float:
    """The derived value from its parts, all of the whole model's site."""
    row = STATISTICS[statistic]
    assert row.formula is not None
    return float(row.formula(*(np.array([p], dtype=np.float32) for p in parts))[0])


def test_no_name_is_used_twice() -> None:
    assert [row.name for part in PARTS for row in part.TABLE] == list(STATISTICS)


@pytest.mark.parametrize("row", STATISTICS.values(), ids=lambda row: row.name)
def test_a_row_is_fit_to_be_shown(row: Statistic) -> None:
    assert re.fullmatch(r"[a-z][a-z0-9_]*", row.name)
    assert not row.name.endswith(("_total", "_count", "_info"))
    assert row.metric == f"stabmon_{row.name}"
    assert row.help.endswith(".")
    assert row.unit in {"1", "nats", "s"}


@pytest.mark.parametrize("row", DERIVED, ids=lambda row: row.name)
def test_a_derived_statistic_is_made_of_stored_ones_of_its_own_scope(row: Statistic) -> None:
    assert row.formula is not None
    assert row.exported
    assert all(STATISTICS[part] in STORED and STATISTICS[part].scope == row.scope for part in row.of)


def test_sums_of_squares_combine_by_sum_and_have_a_human_form() -> None:
    squares = [row for row in STORED if row.name.endswith("_sq")]
    blocks = ["grad_sq", "weight_sq", "update_sq", "intended_update_sq", "lost_update_sq"]
    assert [row.name for row in squares] == ["total_grad_sq", *blocks]
    assert {row.combine for row in squares} == {"sum"}
    assert not any(row.exported for row in squares)
    assert all(any(row.name in derived.of for derived in DERIVED) for row in squares)


@pytest.mark.parametrize(
    ("statistic", "parts", "value"),
    [
        ("grad_norm", (9.0,), 3.0),
        ("update_ratio", (1.0, 4.0), 0.5),
        ("update_ratio", (1e-30, 1e-12), 1e-9),
        ("trust_ratio", (-0.5, -2.0), 0.25),
        ("total_output_change_ratio", (4e-6, 1.0), 2e-3),
    ],
)
def test_a_derived_value(statistic: str, parts: tuple[float, ...], value: float) -> None:
    assert derive(statistic, *parts) == pytest.approx(value, rel=1e-6)


def test_a_ratio_of_a_vanished_square_is_the_floors_and_never_0_or_infinite() -> None:
    assert derive("update_ratio", 0.0, 1.0) == pytest.approx(FLOOR_SQ**0.5)
    assert derive("update_ratio", 1.0, 0.0) == pytest.approx(FLOOR_SQ**-0.5)
    assert derive("update_ratio", 0.0, 0.0) == 1.0


def test_what_was_not_read_derives_to_not_read() -> None:
    for row in DERIVED:
        assert np.isnan(derive(row.name, *[float("nan")] * len(row.of)))


def test_a_trust_ratio_without_a_predicted_change_is_not_a_number() -> None:
    assert np.isnan(derive("trust_ratio", 1.0, 0.0))


def test_a_derived_value_is_float32_of_its_sites() -> None:
    layout = Layout((("actual_loss_change", ""), ("predicted_loss_change", "")), ())
    values: Array = np.array([1.0, 4.0], dtype=np.float32)
    got = Snapshot(1, 0.0, values, layout)["trust_ratio"]
    assert (got.dtype, got.tolist()) == (np.float32, [0.25])
