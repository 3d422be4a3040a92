"""Growth as step^p: sustained p > 3 alerts, at exact steps; everything that healthy runs do is silent."""

import numpy as np
import pytest
from numpy.typing import NDArray

from stabmon.detectors.residual_blowup import ResidualBlowup
from stabmon.detectors.slope import theil_sen
from tests.detectors.series import alerts_of, make_series, told

Floats = NDArray[np.float64]


def steps(count: int) -> Floats:
    return np.arange(1.0, count + 1)


def accelerating(t: Floats) -> Floats:
    """Flat at 20 until step 150, then x1.025 a step."""
    return np.asarray(20 * np.exp(0.025 * np.maximum(t - 150, 0)))


@pytest.mark.parametrize(
    "n",
    [
        3 * steps(600) ** 1.2,
        0.1 * steps(600) ** 2.3,
        1.45 + 0.002 * steps(600),
        1e-3 * steps(600) ** 2 * np.exp(0.2 * np.random.default_rng(0).standard_normal(600)),
    ],
    ids=["t^1.2", "t^2.3", "flat", "noisy t^2"],
)
def test_healthy_growth_is_silent(n: Floats) -> None:
    assert alerts_of(ResidualBlowup(), make_series({"norm_input_msq": n})) == []


def test_the_first_steps_of_pre_ln_are_silent() -> None:
    n = np.interp(steps(200), [1, 2, 3, 4, 8, 13, 19, 25, 200], [6.8, 9.7, 14.3, 18.8, 32.3, 24.8, 9.8, 9.9, 29])
    assert alerts_of(ResidualBlowup(), make_series({"norm_input_msq": n})) == []


def test_growth_as_t_to_the_fourth_from_the_start_alerts_at_step_63() -> None:
    """Judged from step 50, held for a fifth of the run: 50 + .2 t <= t at t = 62.5."""
    (alert,) = alerts_of(ResidualBlowup(), make_series({"norm_input_msq": 1e-3 * steps(100) ** 4}))
    assert (alert.step, alert.severity, alert.since) == (63, "warning", 50)
    assert alert.evidence["growth_exponent"] == pytest.approx(4, abs=1e-3)


def test_the_layer_that_grows_fastest_is_named_and_the_others_are_counted() -> None:
    t = steps(70)
    n = np.stack([t**1, t**4, t**5, t**2], axis=1) * 1e-3
    (alert,) = alerts_of(ResidualBlowup(), make_series({"norm_input_msq": n}))
    assert (alert.layer, alert.site) == (2, "layers.2.norm")
    assert alert.evidence["sites"] == 2


def test_a_warm_up_explains_growth_that_a_constant_rate_does_not() -> None:
    t = steps(300)
    n = 1.5 + 1e-6 * t**4
    ramp = make_series({"norm_input_msq": n, "learning_rate": 1e-6 * t})
    constant = make_series({"norm_input_msq": n, "learning_rate": 0 * t + 3e-4})
    assert alerts_of(ResidualBlowup(), ramp) == []
    assert told(alerts_of(ResidualBlowup(), constant))[0][1] == "warning"


def test_the_end_of_a_warm_up_is_silent() -> None:
    """n follows the square of the way gone: t^4 in the warm-up, then (t - 50)^2, whose p is 4 at its end."""
    t = steps(500)
    rate = np.minimum(t, 100) / 100
    n = 1e-2 * np.cumsum(rate) ** 2
    assert alerts_of(ResidualBlowup(), make_series({"norm_input_msq": n, "learning_rate": rate * 1e-3})) == []


def test_a_ramp_after_the_warm_up_is_a_fault() -> None:
    t = steps(300)
    rate = 1e-3 * 1.02 ** np.maximum(t - 150, 0)
    alerts = alerts_of(ResidualBlowup(), make_series({"norm_input_msq": accelerating(t), "learning_rate": rate}))
    assert told(alerts) == [(273, "warning")]  # held for 30 steps: n is ten times 20 from step 243 on
    assert alerts[0].since == 243


def test_a_decay_of_the_learning_rate_is_no_growth() -> None:
    t = steps(1000)
    rate = 1e-3 * (1.001 - t / 1000)
    assert alerts_of(ResidualBlowup(), make_series({"norm_input_msq": 0.1 * t, "learning_rate": rate})) == []


def overshooting(steps_of: list[int], statistic: str, bad: float, good: float) -> list[tuple[int, str]]:
    """What is said of t^4 growth when the update is read every tenth step, and is bad at `steps_of`."""
    t = steps(120)
    reading = np.where(np.isin(t, steps_of), bad, np.where(t % 10 == 0, good, np.nan))
    update = {statistic: reading}
    if statistic == "trust_ratio":
        update = {"actual_loss_change": -reading, "predicted_loss_change": -np.ones(len(t))}
    return told(alerts_of(ResidualBlowup(), make_series({"norm_input_msq": 1e-3 * t**4, **update})))


def test_an_update_that_changes_the_output_by_more_than_a_fifth_of_a_nat_makes_it_critical() -> None:
    assert overshooting([80], "output_change_kl", 0.5, 0.01) == [(63, "warning"), (80, "critical")]


def test_two_low_trust_ratios_in_a_row_make_it_critical_and_one_does_not() -> None:
    assert overshooting([80, 100], "trust_ratio", 0.1, 0.9) == [(63, "warning")]
    assert overshooting([80, 90], "trust_ratio", 0.1, 0.9) == [(63, "warning"), (90, "critical")]
    assert overshooting([40, 50], "trust_ratio", 0.1, 0.9) == [(63, "warning")]


def test_an_overshoot_before_the_growth_is_not_held_against_it() -> None:
    t = steps(100)
    series = make_series({"norm_input_msq": 1e-3 * t**4, "output_change_kl": np.where(t < 50, 0.7, 0.01)})
    assert told(alerts_of(ResidualBlowup(), series)) == [(63, "warning")]


def test_a_plateau_that_ends_is_silent() -> None:
    """Measured, Post-LN at lr 7e-4: a fall to 2, then up to 5.7 within 50 steps."""
    n = np.interp(steps(250), [1, 50, 150, 160, 170, 190, 210, 250], [1.41, 2.77, 2.0, 2.94, 3.92, 5.41, 5.7, 5.5])
    n *= np.linspace(1, 1.6, 250)  # p = 3.4 at its steepest
    assert alerts_of(ResidualBlowup(), make_series({"norm_input_msq": n})) == []


def test_one_wild_reading_changes_nothing() -> None:
    n = 0.1 * steps(400)
    n[[120, 250]] = [1e6, np.inf]
    assert alerts_of(ResidualBlowup(), make_series({"norm_input_msq": n})) == []


def test_every_tenth_step_is_enough() -> None:
    t = 10 * steps(100)
    (alert,) = alerts_of(ResidualBlowup(), make_series({"norm_input_msq": 1e-9 * t**4}, first=10, every=10))
    assert (alert.step, alert.since) == (70, 50)


def test_its_memory_does_not_grow_with_the_run() -> None:
    detector = ResidualBlowup()
    for snapshot in make_series({"norm_input_msq": 0.1 * steps(1500)}):
        detector.score(snapshot)
    assert len(detector._growth.long) <= 40


def test_theil_sen_is_the_median_of_all_pairwise_slopes() -> None:
    x, y = np.array([0.0, 1, 3, 4]), np.array([0.0, 2, 100, 8])
    pairs = [(y[j] - y[i]) / (x[j] - x[i]) for i in range(4) for j in range(i + 1, 4)]
    both = np.stack([y, [0, np.nan, np.nan, np.nan]], axis=1)
    slope = theil_sen(x, both)
    assert slope[0] == np.median(pairs)
    assert np.isnan(slope[1])
