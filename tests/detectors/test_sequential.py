"""The promised time to a false alarm, by simulation; the statistic itself, against a naive computation."""

from collections.abc import Callable

import numpy as np
import pytest

from stabmon.detectors.sequential import LEAST, WINDOW, ShiryaevRoberts, Whitened, tie
from tests.detectors.losses import Floats, autocorrelated

PROMISED = 100
POINTS = 24_000


NOISES: dict[str, Callable[[np.random.Generator], Floats]] = {
    "gaussian": lambda rng: rng.normal(size=POINTS),
    "t3": lambda rng: rng.standard_t(3, POINTS),
    "AR(.5)": lambda rng: autocorrelated(rng.normal(size=POINTS)),
    "t3 with AR(.5)": lambda rng: autocorrelated(rng.standard_t(3, POINTS)),
    "log-normal": lambda rng: rng.lognormal(size=POINTS),
}


def run_lengths(values: Floats, promised: float, whiten: bool = True) -> Floats:
    """Points between false alarms; the evidence starts from 0 after each."""
    white, sums = Whitened(), ShiryaevRoberts()
    alarms = [0]
    for point, value in enumerate(values.tolist()):
        residual = white.residual(value) if whiten else value
        sums.bet(residual, tie(point))
        if sums.evidence >= promised:
            alarms.append(point)
            sums.forget()
        white.push(value)
        sums.push(residual)
    return np.diff(np.array(alarms, float))


@pytest.mark.parametrize("noise", NOISES)
def test_the_average_run_length_is_the_promised_one_or_longer(noise: str) -> None:
    """By three standard errors of the mean."""
    lengths = run_lengths(NOISES[noise](np.random.default_rng(1)), PROMISED)
    assert len(lengths) >= 10
    assert lengths.mean() - 3 * lengths.std() / np.sqrt(len(lengths)) > PROMISED


def test_without_whitening_autocorrelated_noise_breaks_the_promise() -> None:
    lengths = run_lengths(NOISES["AR(.5)"](np.random.default_rng(1)), 1000, whiten=False)
    assert lengths.mean() + 3 * lengths.std() / np.sqrt(len(lengths)) < 1000


@pytest.mark.parametrize(("sigmas", "within"), [(3.0, 16), (6.0, 10)])
def test_a_shift_is_seen_within_points(sigmas: float, within: int) -> None:
    """Of Gaussian noise, at the spike detector's 1e5."""
    values = np.random.default_rng(2).normal(size=600)
    values[500:] += sigmas
    (first, *_) = np.cumsum(run_lengths(values, 1e5))
    assert 500 <= first <= 500 + within


def test_the_evidence_is_the_mean_of_four_sums_of_bets_on_ranks() -> None:
    values = np.random.default_rng(3).integers(0, 40, 500).astype(float)
    sums = ShiryaevRoberts()
    naive = np.zeros(4)
    powers = np.array([0.05, 0.1, 0.2, 0.4])
    for point, value in enumerate(values):
        sums.bet(float(value), tie(point))
        before = values[max(point - WINDOW, 0) : point]
        if len(before) >= LEAST:
            p = ((before > value).sum() + tie(point) * ((before == value).sum() + 1)) / (len(before) + 1)
            naive = (1 + naive) * powers * p ** (powers - 1)
        assert sums.evidence == pytest.approx(naive.mean(), rel=1e-9)
        sums.push(float(value))


def test_ties_are_broken_uniformly_and_alike_in_every_replay() -> None:
    ties = np.array([tie(step) for step in range(10_000)])
    assert 0 < ties.min() <= ties.max() <= 1
    # Kolmogorov: the largest gap of a uniform sample passes 1.95 / sqrt(n) once in a thousand.
    assert np.abs(np.sort(ties) - np.arange(1, 10_001) / 10_000).max() < 1.95 / 100
    assert tie(7) == tie(7)


def test_the_correlation_is_learnt_from_clipped_values() -> None:
    """One value of a thousand standard deviations, and the next residuals are what they would have been."""
    values = autocorrelated(np.random.default_rng(4).normal(size=400))
    plain, spiked = Whitened(), Whitened()
    for point, value in enumerate(values.tolist()):
        plain.push(value)
        spiked.push(1000.0 if point == 350 else value)
    assert plain.residual(1.0) == pytest.approx(1 - 0.5 * values[-1], abs=0.15 * abs(values[-1]))
    assert spiked.residual(1.0) == pytest.approx(plain.residual(1.0), abs=0.05 * abs(values[-1]) + 0.02)
