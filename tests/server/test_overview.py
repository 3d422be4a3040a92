import numpy as np
import pytest

from stabmon.server.overview import Overview

LOSS, GAIN = ("loss", ""), ("norm_gain", "h.0")


def filled(values: np.ndarray, capacity: int, chunk: int) -> Overview:
    """`values` as the loss of steps 10, 20, 30, …, given in chunks."""
    overview = Overview(capacity)
    rows = np.arange(1, len(values) + 1)
    for begin in range(0, len(values), chunk):
        part = slice(begin, begin + chunk)
        line = values[part][np.newaxis].astype(np.float32)
        overview.add([LOSS], rows[part], 10 * rows[part], 0.5 * rows[part], line, line)
    return overview


@pytest.mark.parametrize("chunk", [1, 7, 64, 1000])
@pytest.mark.parametrize("count", [1, 15, 16, 17, 100, 1000])
def test_buckets_hold_lowest_and_highest_of_equally_many_rows_however_they_come(count: int, chunk: int) -> None:
    values = np.random.default_rng(0).normal(size=count).astype(np.float32)
    overview = filled(values, capacity=16, chunk=chunk)
    width = 1
    while width * 16 < count:
        width *= 2
    parts = [values[i : i + width] for i in range(0, count, width)]
    assert overview.width == width
    assert overview.low[:, 0].tolist() == [part.min() for part in parts]
    assert overview.high[:, 0].tolist() == [part.max() for part in parts]
    ends = np.minimum(width * np.arange(1, len(parts) + 1), count)
    assert overview.rows.tolist() == ends.tolist()
    assert overview.steps.tolist() == (10 * ends).tolist()


def test_one_spike_in_a_hundred_thousand_rows_is_kept() -> None:
    values = np.ones(100_000)
    values[54_321] = 99.0
    overview = filled(values, capacity=100, chunk=5000)
    assert len(overview.steps) <= 100
    assert overview.high.max() == 99.0
    bucket = int(overview.high[:, 0].argmax())
    before = overview.rows[bucket - 1]
    assert before < 54_322 <= overview.rows[bucket]


def test_what_was_not_read_gives_way_to_what_was_and_infinity_is_read() -> None:
    values = np.array([np.nan, 2.0, np.inf, 1.0, np.nan, np.nan, 3.0, np.nan])
    overview = filled(values, capacity=4, chunk=8)
    np.testing.assert_array_equal(overview.low[:, 0], np.float32([2.0, 1.0, np.nan, 3.0]))
    np.testing.assert_array_equal(overview.high[:, 0], np.float32([2.0, np.inf, np.nan, 3.0]))


def test_a_column_that_comes_later_was_not_read_before() -> None:
    overview = filled(np.array([1.0, 2.0]), capacity=8, chunk=2)
    new = np.float32([[7.0], [3.0]])
    overview.add([GAIN, LOSS], np.array([3]), np.array([30]), np.array([1.5]), new, new)
    assert overview.columns == {LOSS: 0, GAIN: 1}
    np.testing.assert_array_equal(overview.low, np.float32([[1.0, np.nan], [2.0, np.nan], [3.0, 7.0]]))


@pytest.mark.parametrize(
    ("first", "last", "found"), [(0, 99, [10, 20, 30]), (20, 20, [20]), (11, 25, [20, 30]), (31, 99, []), (0, 5, [10])]
)
def test_a_range_of_steps_has_the_buckets_that_it_lies_in(first: int, last: int, found: list[int]) -> None:
    overview = filled(np.array([1.0, 2.0, 3.0]), capacity=8, chunk=3)
    assert overview.steps[overview.span(first, last)].tolist() == found
