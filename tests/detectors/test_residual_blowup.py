"""Growth as step^p: sustained p > 3 alerts, at exact steps; everything that healthy runs do is silent."""

import numpy as np
import pytest

from stabmon.detectors.arrays import Floats
from stabmon.detectors.residual_blowup import ResidualBlowup
from stabmon.detectors.slope import theil_sen
from stabmon.records import Alert
from tests.detectors.series import alerts_of, make_series, steps, told


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


def test_growth_as_t_to_the_fourth_from_the_start_alerts_at_step_80() -> None:
    """Judged from step 50, held for 30."""
    (alert,) = alerts_of(ResidualBlowup(), make_series({"norm_input_msq": 1e-3 * steps(100) ** 4}))
    assert (alert.step, alert.severity, alert.since) == (80, "warning", 50)
    assert alert.evidence["growth_exponent"] == pytest.approx(4, abs=1e-3)


def test_the_layer_that_grows_fastest_is_named_and_the_others_are_counted() -> None:
    t = steps(85)
    n = np.stack([t**1, 2 * t**4, t**5, t**2], axis=1) * 1e-3
    (alert,) = alerts_of(ResidualBlowup(), make_series({"norm_input_msq": n}))
    assert (alert.layer, alert.site) == (2, "layers.2.norm")
    assert alert.evidence["sites"] == 2


def test_a_low_layer_that_grows_is_silent_until_the_largest_input_grows_too() -> None:
    """Measured, Pre-LN at lr 1e-2: the first block's norm by t^2.8 below a final norm of 100 times its size."""
    t = steps(400)
    low = 1e-7 * t**4
    hidden = np.stack([low, 1000 + low], axis=1)
    assert alerts_of(ResidualBlowup(), make_series({"norm_input_msq": hidden})) == []
    shown = np.stack([low, 1e-2 + low], axis=1)
    assert alerts_of(ResidualBlowup(), make_series({"norm_input_msq": shown})) != []


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
    assert overshooting([90], "output_change_kl", 0.5, 0.01) == [(80, "warning"), (90, "critical")]


def test_three_low_trust_ratios_in_a_row_make_it_critical_and_two_do_not() -> None:
    assert overshooting([80, 90, 110], "trust_ratio", 0.1, 0.9) == [(80, "warning")]
    assert overshooting([90, 100, 110], "trust_ratio", 0.1, 0.9) == [(80, "warning"), (110, "critical")]
    assert overshooting([30, 40, 50], "trust_ratio", 0.1, 0.9) == [(80, "warning")]


def test_a_hundredfold_growth_is_critical_by_itself() -> None:
    """t^4 from step 50 on is 100 times as much at step 158.1."""
    alerts = alerts_of(ResidualBlowup(), make_series({"norm_input_msq": 1e-3 * steps(200) ** 4}))
    assert told(alerts) == [(80, "warning"), (159, "critical")]


def test_an_overshoot_before_the_growth_is_not_held_against_it() -> None:
    t = steps(100)
    series = make_series({"norm_input_msq": 1e-3 * t**4, "output_change_kl": np.where(t < 50, 0.7, 0.01)})
    assert told(alerts_of(ResidualBlowup(), series)) == [(80, "warning")]


def test_a_plateau_that_ends_is_silent() -> None:
    """Measured, Post-LN at lr 7e-4: a fall to 2, then up to 5.7 within 50 steps."""
    n = np.interp(steps(250), [1, 50, 150, 160, 170, 190, 210, 250], [1.41, 2.77, 2.0, 2.94, 3.92, 5.41, 5.7, 5.5])
    n *= np.linspace(1, 1.6, 250)  # p = 3.4 at its steepest
    assert alerts_of(ResidualBlowup(), make_series({"norm_input_msq": n})) == []


def test_growth_back_to_what_it_was_on_a_plateau_is_silent() -> None:
    """Measured on a copying task: a swollen stream shrinks as the plateau ends, and grows back by x2.6 in 50 steps."""
    at = [1, 20, 50, 100, 120, 130, 180, 190, 200, 210, 230, 260, 300, 350]
    n = np.interp(steps(350), at, [8, 150, 280, 292, 150, 60.3, 75.6, 115, 134, 156, 196, 243, 309, 353])
    assert alerts_of(ResidualBlowup(), make_series({"norm_input_msq": n})) == []
    never = np.where(steps(350) < 130, 60.3, n)
    never[:20] = 6
    assert told(alerts_of(ResidualBlowup(), make_series({"norm_input_msq": never})))[0][1] == "warning"


def test_one_wild_reading_changes_nothing() -> None:
    n = 0.1 * steps(400)
    n[[120, 250]] = [1e6, np.inf]
    assert alerts_of(ResidualBlowup(), make_series({"norm_input_msq": n})) == []


def test_every_tenth_step_is_enough() -> None:
    t = 10 * steps(100)
    alert, *_ = alerts_of(ResidualBlowup(), make_series({"norm_input_msq": 1e-9 * t**4}, first=10, every=10))
    assert (alert.step, alert.since) == (80, 50)


def test_its_memory_does_not_grow_with_the_run() -> None:
    detector = ResidualBlowup()
    for snapshot in make_series({"norm_input_msq": 0.1 * steps(1500)}):
        detector.score(snapshot)
    assert len(detector._growth.long) <= 40


def test_theil_sen_is_the_median_of_all_pairwise_slopes() -> None:
    x, y = np.array([0.0, 1, 3, 4]), np.array([0.0, 2, 100, 8])
    pairs = [(y[j] - y[i]) / (x[j] - x[i]) for i in range(4) for j in range(i + 1, 4)]
    gap = np.where(x == 1, np.nan, y)
    both = np.stack([y, [0, np.nan, np.nan, np.nan], gap], axis=1)
    slope = theil_sen(x, both)
    assert slope[0] == theil_sen(x, both[:, :1])[0] == np.median(pairs)
    assert np.isnan(slope[1])
    assert slope[2] == np.median([100 / 3, 8 / 4, -92 / 1])


def late(count: int = 4000, begins: int = 3000, rate: float = 0.02) -> Floats:
    t = steps(count)
    return np.asarray(50 * (t / begins) ** 0.8 * np.exp(rate * np.maximum(t - begins, 0)))


def test_late_in_a_run_sudden_growth_is_told_of_within_a_hundred_and_twenty_steps() -> None:
    """x4 after up to ln 4 / .02 = 69 steps, held for 30: the fit since t / 1.4 would need 450."""
    alert, *_ = alerts_of(ResidualBlowup(), make_series({"norm_input_msq": late(3200)[9::10]}, first=10, every=10))
    assert 3080 <= alert.step <= 3120
    assert alert.severity == "warning"
    assert "exponentially" in alert.cause


@pytest.mark.parametrize("scale", [1e-3, 1e3])
def test_the_scale_of_the_stream_changes_nothing(scale: float) -> None:
    n = accelerating(steps(320))
    plain = alerts_of(ResidualBlowup(), make_series({"norm_input_msq": n}))
    assert told(alerts_of(ResidualBlowup(), make_series({"norm_input_msq": scale * n}))) == told(plain)
    assert plain


def test_a_jump_of_the_learning_rate_explains_what_the_weights_then_drift() -> None:
    """n follows the way gone, t and then 10 (t - 300): p = 5 in steps at t = 400, and 1 in steps of the new rate."""
    t = steps(500)
    rate = np.where(t < 300, 1e-3, 1e-2)
    n = np.cumsum(rate)
    assert alerts_of(ResidualBlowup(), make_series({"norm_input_msq": n, "learning_rate": rate})) == []
    blind = make_series({"norm_input_msq": n, "learning_rate": 0 * t + 1e-3})
    assert told(alerts_of(ResidualBlowup(), blind))[0][1] == "warning"


def rises(count: int, **more: Floats) -> list[Alert]:
    """A blow-up from step 150 on, with what else is read."""
    return alerts_of(ResidualBlowup(), make_series({"norm_input_msq": accelerating(steps(count)), **more}))


def test_growth_within_a_stall_is_left_to_the_stall() -> None:
    assert rises(400, context_share=np.full(400, 1e-6)) == []


def test_growth_that_begins_on_a_plateau_is_told_once_it_is_tenfold() -> None:
    """From step 243 on, at x1.025 a step: tenfold 93 steps later."""
    alert = rises(400, context_share=np.full(400, 0.05))[0]
    assert (alert.step, alert.since) == (336, 243)
    assert accelerating(np.array(335)) < 10 * accelerating(np.array(243)) < accelerating(np.array(336))
    assert rises(400, context_share=np.full(400, 0.1))[0].step == 273


def test_a_run_that_collapsed_since_is_told_to_go_back() -> None:
    share = np.where(steps(400) < 260, 0.4, 1e-5)
    (alert,) = rises(400, context_share=share)
    assert alert.action.startswith("has blown up: a norm's input grows as step^")
    assert "Go back to a checkpoint before step 243" in alert.action
    assert rises(400, context_share=np.full(400, 0.4))[0].ruled_out == ("a collapse, so far: context share 0.4",)


def test_a_ramp_is_named_and_its_end_is_the_remedy() -> None:
    rate = 1e-3 * 1.02 ** np.maximum(steps(300) - 150, 0)
    (alert,) = rises(300, learning_rate=rate)
    assert f"the learning rate has risen x{1.02**30:.1f} meanwhile" in alert.cause
    assert alert.remedies[0].endswith("and end the ramp that it is on.")
    steady, *_ = rises(300, learning_rate=np.full(300, 1e-3))
    assert "a rising learning rate: x1.00 since it began" in steady.ruled_out


def test_float16_near_its_end_is_critical_and_its_time_is_in_the_first_line() -> None:
    t = steps(380)
    largest = 640 * np.sqrt(accelerating(t))  # x1.0125 a step, from 640 sqrt(20) at step 150: 65,504 at step 400.1
    alerts = rises(380, activation_max=largest, range_used=np.log(largest / 65504))
    assert told(alerts) == [(273, "warning"), (290, "critical")]  # x4 takes ln 4 / .0125 = 110.9 steps
    assert "float16 overflows in about 127 steps" in alerts[0].action
    assert "float16 overflows in about 110 steps" in alerts[1].action


def test_after_a_stop_late_in_a_run_the_same_is_told() -> None:
    """A resume shows the last 2,000 steps again; the growth begins after it."""
    values = {"norm_input_msq": late(3200)[9::10], "learning_rate": np.full(320, 1e-3)}
    whole = make_series(values, first=10, every=10)
    again = [s for s in whole if s.step > 1050]
    first, second = (alerts_of(ResidualBlowup(), run) for run in (whole, again))
    assert told(first) == told(second)
    assert first[0].since == second[0].since
