"""Steady growth of log Z to a size that bfloat16 rounds: warned of once; levels, starts and noise are silent."""

import numpy as np
import pytest

from stabmon.detectors.arrays import Floats
from stabmon.detectors.logit_drift import LogitDrift
from stabmon.records import Alert
from tests.detectors.series import alerts_of, make_series, told

T = np.arange(10.0, 3001, 10)


def judged(log_z: Floats, mean: Floats | None = None) -> list[Alert]:
    values = {"log_z_msq": log_z**2, "log_z": log_z}
    if mean is not None:
        values |= {"logit_mean": mean, "logit_max": np.abs(mean) + 5}
    return alerts_of(LogitDrift(), make_series(values, first=10, every=10))


@pytest.mark.parametrize("sign", [1, -1])
def test_a_linear_drift_is_told_of_as_the_median_of_three_readings_reaches_32_nats(sign: int) -> None:
    """.02 t is 32 at t = 1600, and double what it was at half the run; the third reading is up to 6 % later."""
    (alert,) = judged(sign * 0.02 * T)
    assert alert.severity == "warning"
    assert 1600 <= alert.step <= 1700
    assert alert.evidence["log_z_rms"] == pytest.approx(0.02 * alert.step, rel=1e-4)
    assert alert.evidence["log_z_rms_at_half"] == pytest.approx(0.02 * alert.since, rel=0.02)
    assert 0.45 * alert.step <= alert.since <= 0.55 * alert.step


@pytest.mark.parametrize(
    "log_z",
    [
        5.5 + 2 * np.log(T),
        np.full_like(T, 120.0),
        40 * (1 - np.exp(-T / 100)),
        30 + 10 * np.log(T / 10) / np.log(300),
        0.009 * T,
        60 - 0.01 * T,
        60 * np.exp(np.random.default_rng(0).normal(0, 0.3, len(T))),
        5 * T**0.3,
    ],
    ids=["logarithm", "a level", "the start", "a slow rise", "small", "falls", "noise", "t^.3"],
)
def test_what_healthy_runs_do_is_silent(log_z: Floats) -> None:
    assert judged(log_z) == []


@pytest.mark.parametrize("seed", range(3))
def test_noise_of_a_tenth_does_not_hide_a_drift(seed: int) -> None:
    noisy = 0.02 * T * np.exp(np.random.default_rng(seed).normal(0, 0.1, len(T)))
    assert 1300 <= judged(noisy)[0].step <= 1700


def test_it_tells_a_shift_of_all_logits_from_a_head_that_grows() -> None:
    shift, spread = judged(-0.02 * T, mean=-0.02 * T - 5)[0], judged(0.02 * T, mean=0 * T)[0]
    assert shift.cause.startswith("All logits move together")
    assert spread.cause.startswith("The logits spread")
    assert shift.ruled_out[0].startswith("a head that grows")
    assert spread.ruled_out[0].startswith("a shift of all logits: mean logit 0.0 -> 0.0")


def test_a_drift_before_step_500_is_silent() -> None:
    assert judged(0.2 * T[:49]) == []


def test_after_a_resume_a_thousand_steps_must_do() -> None:
    """At step 50,000, of which nothing is remembered: 20 -> 60 within 2,000 steps."""
    log_z = np.linspace(20, 60, 201)
    snapshots = make_series({"log_z_msq": log_z**2}, first=50000, every=10)
    (alert, *_) = alerts_of(LogitDrift(), snapshots)
    assert 51000 <= alert.step <= 51700


def test_its_memory_does_not_grow_with_the_run() -> None:
    detector = LogitDrift()
    for snapshot in make_series({"log_z_msq": np.ones(3000)}):
        detector.score(snapshot)
    assert len(detector._trail) <= 30


def test_an_infinite_log_z_is_left_to_others() -> None:
    log_z = 0.01 * T
    log_z[[150, 151]] = [np.inf, np.nan]
    assert told(judged(log_z)) == []
