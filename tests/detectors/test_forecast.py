"""Bounds of a crossing: exact where the trend is a line or a parabola, none where it is neither."""

import numpy as np
import pytest

from stabmon.detectors.arrays import Floats
from stabmon.detectors.forecast import crossing

T = np.arange(0.0, 60, 10)


def test_a_straight_trend_crosses_where_the_line_does() -> None:
    """.02 t from -3 at t = 0: 0 at t = 150, a hundred steps after the last reading at 50."""
    found = crossing(list(T), list(0.02 * T - 3), 0.0)
    assert found is not None
    assert (found.earliest, found.latest) == pytest.approx((100, 100))
    assert str(found) == "in about 100 steps"


def test_growth_that_accelerates_crosses_before_the_line_and_when_the_parabola_does() -> None:
    """t^2/1000 reaches 10 at t = 100, 50 steps on; the least-squares line 2.5 (t - 25)/50 + 11/12 only at 206.7."""
    y = T**2 / 1000
    found = crossing(list(T), list(y), 10.0)
    assert found is not None
    slope = ((T - 25) * y).sum() / ((T - 25) ** 2).sum()
    line = 25 + (10 - y.mean()) / slope - 50
    assert (found.earliest, found.latest) == pytest.approx((50, line))
    assert str(found) == f"in 50 to {line:.0f} steps"


def test_growth_that_slows_has_no_upper_bound() -> None:
    found = crossing(list(T), list(10 - (T - 70) ** 2 / 1000), 12.0)
    assert found is not None
    assert found.latest == np.inf
    assert str(found).endswith("at the earliest")


@pytest.mark.parametrize(
    "values",
    [-T, 0 * T, np.array([0.0, 3, -3, 3, -3, 3]), np.array([0, 1, np.nan, 3, 4, 5]), 1e-4 * T],
    ids=["falls", "flat", "noise", "a gap", "in 100,000 steps"],
)
def test_no_trend_is_no_forecast(values: Floats) -> None:
    assert crossing(list(T), list(values), 10.0) is None


def test_four_readings_are_no_trend() -> None:
    assert crossing([0, 1, 2, 3], [0, 1, 2, 3], 10.0) is None


def test_beyond_the_line_it_is_now() -> None:
    found = crossing(list(T), list(T), 10.0)
    assert found is not None
    assert (found.earliest, found.latest) == (0, 0)


@pytest.mark.parametrize("seed", range(5))
def test_noise_of_a_tenth_of_the_rise_moves_the_bounds_by_less_than_half(seed: int) -> None:
    t = np.arange(0.0, 120, 10)
    noisy = 0.02 * t - 3 + np.random.default_rng(seed).normal(0, 0.02, len(t))
    found = crossing(list(t), list(noisy), 0.0)
    assert found is not None
    assert 20 <= found.earliest <= 45
    assert found.latest >= 35


def test_a_late_bend_brings_the_earlier_bound_forward() -> None:
    """.01 a step until 80, then .05: by all readings alone it would be later than it is."""
    t = np.arange(0.0, 121, 10)
    y = 0.01 * t + 0.04 * np.maximum(t - 80, 0)
    found = crossing(list(t), list(y), 10.0)
    assert found is not None
    assert found.earliest <= (10 - y[-1]) / 0.05 <= found.latest
