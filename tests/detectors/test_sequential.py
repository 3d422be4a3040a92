"""The promised time to a false alarm, by simulation; the statistic itself, against a naive computation."""

from collections.abc import Callable

import numpy as np
import pytest

from stabmon.detectors.arrays import Floats
from stabmon.detectors.sequential import LEAST, STREAM_WINDOW, WINDOW, ShiryaevRoberts, Streams, Whitened, tie
from tests.detectors.losses import autocorrelated

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


STREAMS = 8
FEWER_POINTS = 4000
PROMISED_TOGETHER = 40
SHARED = {"independent": 0.0, "dependent": 0.8}


def many(noise: str, shared: float) -> Floats:
    """float[point, stream]; the same noise is in all of them, `shared` times as large as their own."""
    rng = np.random.default_rng(5)
    own = np.stack([NOISES[noise](rng)[:FEWER_POINTS] for _ in range(STREAMS)], axis=1)
    return np.asarray(own + shared * NOISES[noise](rng)[:FEWER_POINTS, None])


def false_alarms(values: Floats, promised: float) -> int:
    """Of all streams together; the evidence starts from 0 after each."""
    streams = Streams(values.shape[1])
    count = 0
    for point, row in enumerate(values):
        streams.bet(row, tie(point))
        if streams.evidence >= promised:
            count += 1
            streams.forget()
        streams.push(row)
    return count


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("shared", SHARED.values(), ids=SHARED)
def test_eight_streams_together_keep_the_promise_of_one(noise: str, shared: float) -> None:
    """At most one false alarm in 40 readings, without a correction for their number: their sum has over 100."""
    assert 0 < false_alarms(many(noise, shared), PROMISED_TOGETHER) <= FEWER_POINTS / PROMISED_TOGETHER


@pytest.mark.parametrize("of", [1, 8, 100])
def test_of_many_streams_the_one_that_rises_is_named_a_few_readings_later_than_alone(of: int) -> None:
    """Six standard deviations; evidence of one among a hundred must be a hundred times as large."""
    values = np.random.default_rng(6).normal(size=(400, of))
    values[300:, of // 2] += 6
    streams = Streams(of)
    for point, row in enumerate(values):
        streams.bet(row, tie(point))
        if streams.evidence >= 1e4:
            break
        streams.push(row)
    assert 302 <= point <= {1: 304, 8: 306, 100: 308}[of]
    assert streams.worst == of // 2


def naive_evidence(values: list[float], points: list[int]) -> float:
    """R of one stream, all of it computed anew from lists."""
    powers = np.array([0.05, 0.1, 0.2, 0.4])
    total, bound = np.zeros(4), np.inf
    clipped, residuals = [0.0], list[float]()
    before = 0.0
    for count, (value, point) in enumerate(zip(values, points, strict=True)):
        fade = (1 - 1 / STREAM_WINDOW) ** np.arange(len(clipped) - 2, -1, -1.0)
        now, old = np.array(clipped[1:]), np.array(clipped[:-1])
        square = (fade * old**2).sum()
        correlation = min(max((fade * now * old).sum() / square, 0), 0.95) if square > 0 else 0.0
        residual = value - correlation * before
        past = np.array(residuals[-STREAM_WINDOW:])
        if count >= LEAST:
            p = ((past > residual).sum() + tie(point) * ((past == residual).sum() + 1)) / (len(past) + 1)
            total = (1 + total) * powers * p ** (powers - 1)
        residuals.append(residual)
        clipped.append(float(np.clip(value, -bound, bound)))
        before = value
        if count + 1 >= LEAST and (count + 1) % 16 == 0:
            last = np.sort(values[max(count + 1 - STREAM_WINDOW, 0) : count + 1])
            low, high = (last[int(np.ceil(q * len(last))) - 1] for q in (0.25, 0.75))
            bound = 3 * (high - low) / 1.349
    return float(total.mean())


def test_the_evidence_of_streams_is_the_mean_of_theirs_and_a_missing_value_touches_nothing() -> None:
    """Three streams, of which two miss a third of their values, against lists without the gaps."""
    rng = np.random.default_rng(7)
    values = np.stack([autocorrelated(rng.standard_t(3, 500)) for _ in range(3)], axis=1)
    values[rng.random((500, 3)) < [0, 0.3, 0.3]] = np.nan
    streams = Streams(3)
    for point, row in enumerate(values):
        streams.bet(row, tie(point))
        streams.push(row)
    read = [np.flatnonzero(np.isfinite(column)) for column in values.T]
    naive = [naive_evidence(values[rows, i].tolist(), rows.tolist()) for i, rows in enumerate(read)]
    assert streams.evidence == pytest.approx(np.mean(naive), rel=1e-6)
