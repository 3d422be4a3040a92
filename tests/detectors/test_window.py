"""The sorted window against numpy on the plain last values."""

import numpy as np
import pytest

from stabmon.detectors.window import Window


@pytest.mark.parametrize("size", [1, 4, 7])
def test_median_quantile_and_rank_are_those_of_the_last_values(size: int) -> None:
    values = np.random.default_rng(0).integers(0, 6, 60).astype(float)
    window = Window(size)
    for number, value in enumerate(values, 1):
        window.push(value)
        last = values[max(number - size, 0) : number]
        assert window.median == np.median(last)
        for share in (0.02, 0.25, 0.5, 0.75, 0.98, 1.0):
            assert window.quantile(share) == np.quantile(last, share, method="inverted_cdf")
        assert window.above(3.0) == ((last > 3).sum(), (last == 3).sum())
        assert window.full == (number >= size)


def test_the_spread_of_gaussian_values_is_their_standard_deviation() -> None:
    window = Window(100_001)
    for value in np.random.default_rng(0).normal(5, 0.3, 100_001):
        window.push(float(value))
    assert window.spread == pytest.approx(0.3, rel=0.02)  # five standard errors of 1.17 sigma / sqrt(n)
