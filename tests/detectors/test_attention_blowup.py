"""Logits that grow as step^p and entropies that fall with them: p > 3 alerts, at exact steps; a hot run does not."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import ArrayLike

from stabmon.detectors.arrays import Floats
from stabmon.detectors.attention_blowup import AttentionBlowup
from stabmon.detectors.words import bfloat16_step
from stabmon.records import Snapshot
from tests.detectors.series import alerts_of, make_series, steps, told


def run(logit: ArrayLike, entropy: ArrayLike, **more: ArrayLike) -> list[Snapshot]:
    """A reading every step; the lowest head is 10 % under the mean."""
    low = 0.9 * np.asarray(entropy)
    return make_series(
        {"attention_logit_max": logit, "attention_entropy": entropy, "attention_entropy_min": low, **more}
    )


def ramp(count: int, begins: int, growth: float, level: float = 5.0) -> Floats:
    """`level`, then times `growth` a step."""
    return np.asarray(level * growth ** np.maximum(steps(count) - begins, 0))


def sharpens(logit: Floats) -> Floats:
    """.9 at 5, .1 at 50."""
    return np.asarray(np.minimum(0.9 * (logit / 5) ** -0.954, 0.9))


def test_a_ramp_of_3_percent_a_step_is_critical_when_logits_pass_50_and_entropy_is_under_a_tenth() -> None:
    """50 is passed at step 150 + ln 10 / ln 1.03 = 227.9, and entropy .1 there, too."""
    logit = ramp(350, 150, 1.03)
    (alert,) = alerts_of(AttentionBlowup(), run(logit, sharpens(logit)))
    assert (alert.step, alert.severity) == (228, "critical")
    assert alert.evidence["attention_logit_max"] == pytest.approx(5 * 1.03**78, rel=1e-5)
    assert alert.evidence["entropy_before"] > 3 * alert.evidence["attention_entropy"]
    assert 150 < alert.since <= 198


def test_it_is_critical_only_once_the_loss_suffers() -> None:
    """ln(loss / best) passes .07 at step 240 + .07 * 500 = 275, its median of 12 steps some 5 later."""
    logit, t = ramp(350, 150, 1.03), steps(350)
    well = run(logit, sharpens(logit), loss=np.full(350, 2.0))
    hurt = run(logit, sharpens(logit), loss=2 * np.exp(np.maximum(t - 240, 0) / 500))
    (alert,) = alerts_of(AttentionBlowup(), well)
    assert (alert.step, alert.severity) == (228, "warning")
    assert "harm to the loss, so far: +0.0% against its best" in alert.ruled_out
    warned, paged = alerts_of(AttentionBlowup(), hurt)
    assert told([warned, paged]) == [(228, "warning"), (281, "critical")]
    assert paged.evidence["loss_rise"] == pytest.approx(0.071, abs=1e-4)
    assert "the loss is 7% up already" in paged.action


def test_growth_as_step_to_the_fourth_is_told_once_it_has_lasted_a_fifth_of_the_run() -> None:
    """Judged from step 50 on and held for 30 steps or .2 t: at 62.5. The exponent is the power."""
    (alert,) = alerts_of(AttentionBlowup(), run(4e-6 * steps(70) ** 4, np.full(70, 0.8)))
    assert (alert.step, alert.severity, alert.since) == (63, "warning", 50)
    assert alert.evidence["growth_exponent"] == pytest.approx(4, abs=1e-3)


def layers(logit: Floats, count: int, noise: float = 0.12) -> Floats:
    """The same in each layer, but for the noise of a largest value."""
    rng = np.random.default_rng(0)
    return np.asarray(logit[:, None] * np.exp(noise * rng.standard_normal((len(logit), count))))


def test_layers_that_sharpen_together_are_told_of_before_any_is_sharp() -> None:
    """x1.03 a step from 150 on: by step 185 S is 14 and the entropy .33; S > 50 alone would be 43 steps later."""
    logit = ramp(185, 150, 1.03)
    sharper = run(layers(logit, 6), layers(sharpens(logit), 6, 0), loss=np.full(185, 2.0))
    (alert,) = alerts_of(AttentionBlowup(), sharper)
    assert alert.severity == "warning"
    assert 160 <= alert.step <= 180
    assert alert.step - 40 <= alert.since <= alert.step - 30
    # The slope over 40 steps, times their middle's distance from the start; the whole ramp's would be .03 a step.
    assert 2 < alert.evidence["growth_exponent_of_all"] < 0.03 * (alert.step - 20)
    assert alert.evidence["attention_logit_max"] < 20


def test_two_layers_or_one_of_six_are_not_together() -> None:
    logit, loss = ramp(200, 150, 1.03), np.full(200, 2.0)
    assert alerts_of(AttentionBlowup(), run(layers(logit, 2), layers(sharpens(logit), 2, 0), loss=loss)) == []
    one = np.where(np.arange(6) == 3, logit[:, None], 5.0)
    assert alerts_of(AttentionBlowup(), run(one, sharpens(one), loss=loss)) == []


def test_layers_that_sharpen_as_a_task_is_learnt_are_silent() -> None:
    """Measured, copying: S from 3.5 to 10 between steps 90 and 130, the entropy from .9 to .6, the loss to a third.
    With a loss that stays the same is told; where there is none, nobody knows.
    """
    at = np.clip((steps(250) - 90) / 40, 0, 1)
    logit, entropy = layers(3.5 * np.exp(1.05 * at), 4), layers(0.9 * np.exp(-0.4 * at), 4, 0.01)
    assert alerts_of(AttentionBlowup(), run(logit, entropy, loss=2 * np.exp(-1.1 * at))) == []
    assert alerts_of(AttentionBlowup(), run(logit, entropy)) == []
    alert, _ = alerts_of(AttentionBlowup(), run(logit, entropy, loss=np.full(250, 2.0)))
    assert 110 < alert.step <= 140


def test_logits_that_grow_together_while_entropy_hardly_falls_are_silent() -> None:
    """q = .9: H ~ t^-.9 while S ~ t^4, over the 200 steps that follow step 150."""
    t = np.maximum(steps(350), 150) / 150
    flat = np.full(350, 2.0)
    assert (
        alerts_of(AttentionBlowup(), run(layers(5 * t**4, 6, 0), layers(0.9 * t**-0.9, 6, 0), loss=flat))[0].step > 250
    )
    alert = alerts_of(AttentionBlowup(), run(layers(5 * t**4, 6, 0), layers(0.9 * t**-1.6, 6, 0), loss=flat))[0]
    assert alert.step < 200


@pytest.mark.parametrize("power", [0.5, 1, 2, 2.9])
def test_any_slower_power_is_silent_up_to_1000(power: float) -> None:
    logit = 900 * (steps(400) / 400) ** power
    assert alerts_of(AttentionBlowup(), run(logit, sharpens(logit))) == []


def test_the_hot_run_is_silent() -> None:
    """Measured at lr 1e-2: S to 76 with noise of 12 %, the first layer's entropy down to .05."""
    t, noise = steps(400), np.exp(0.12 * np.random.default_rng(0).standard_normal((400, 2)))
    logit = np.interp(t, [1, 10, 20, 40, 60, 100, 200, 400], [4, 7, 11, 18, 24, 34, 50, 60])[:, None] * noise
    entropy = np.interp(t, [1, 20, 40, 60, 100, 160, 220, 400], [0.83, 0.6, 0.33, 0.22, 0.14, 0.1, 0.05, 0.05])
    assert alerts_of(AttentionBlowup(), run(logit, np.stack([entropy, 4 * entropy], axis=1))) == []


def test_fast_growth_of_small_logits_is_a_phase_of_learning() -> None:
    """x8 within 60 steps, as when heads find what to look at, to 40 and an entropy of .3."""
    logit = np.interp(steps(300), [1, 150, 210, 300], [5, 5, 40, 42])
    entropy = np.interp(steps(300), [1, 150, 210, 300], [0.9, 0.9, 0.3, 0.28])
    assert alerts_of(AttentionBlowup(), run(logit, entropy)) == []


def test_an_entropy_that_falls_under_a_tenth_by_that_growth_is_told_while_logits_are_small() -> None:
    """As with QK-norm, which bounds the logits, here by 40: they are at 27 by step 261.5, where entropy passes .1."""
    logit = np.minimum(ramp(350, 150, 1.03, level=1.0), 40)
    alert, over = alerts_of(AttentionBlowup(), run(logit, np.minimum(2.7 / logit, 0.9)))
    assert told([alert, over])[0] == (262, "warning")
    assert alert.evidence["attention_logit_max"] < 50
    assert alert.evidence["attention_entropy"] < 0.1


def test_an_entropy_that_was_low_before_does_not_agree() -> None:
    logit = ramp(300, 150, 1.03)
    assert told(alerts_of(AttentionBlowup(), run(logit, np.full(300, 0.05)))) == [(228, "warning")]


def test_a_logit_of_1000_is_told_however_slowly_it_came_but_not_where_it_began() -> None:
    slow = 1100 * (steps(400) / 400) ** 0.5
    (alert,) = alerts_of(AttentionBlowup(), run(slow, np.full(400, 0.5)))
    assert (alert.step, alert.severity) == (331, "warning")  # 1100 sqrt(t / 400) > 1000
    assert alerts_of(AttentionBlowup(), run(np.full(100, 1500.0), np.full(100, 0.5))) == []


def test_the_layer_that_grows_fastest_is_named_and_the_others_are_counted() -> None:
    t = steps(80)
    logit = 4e-6 * np.stack([t**1, t**4, t**4.2, t**2], axis=1)
    (alert,) = alerts_of(AttentionBlowup(), run(logit, np.full((80, 4), 0.8)))
    assert (alert.layer, alert.evidence["sites"]) == (2, 2)


def test_a_warm_up_explains_growth_that_a_constant_rate_does_not() -> None:
    t = steps(200)
    logit = 1e-6 * t**4
    assert alerts_of(AttentionBlowup(), run(logit / 2, np.full(200, 0.8), learning_rate=1e-6 * t)) == []
    (alert,) = alerts_of(AttentionBlowup(), run(logit, np.full(200, 0.8), learning_rate=0 * t + 1e-3))
    assert alert.step == 85  # 1e-6 t^4 > 50


def test_scale_of_steps_does_not_matter() -> None:
    """Ten times as long a run, read every tenth step: the same alert ten times later."""
    logit = 1e-4 * steps(100) ** 4
    rows = {
        "attention_logit_max": logit,
        "attention_entropy": 0 * logit + 0.8,
        "attention_entropy_min": 0 * logit + 0.7,
    }
    (long,) = alerts_of(AttentionBlowup(), make_series(rows, first=10, every=10))
    (short,) = alerts_of(AttentionBlowup(), run(logit, np.full(100, 0.8)))
    assert long.evidence["growth_exponent"] == pytest.approx(short.evidence["growth_exponent"], rel=1e-3)
    assert 260 < long.step <= 300  # S > 50 at 266; 30 steps of growth are behind it


def test_what_was_ruled_out_was_read() -> None:
    logit = ramp(260, 150, 1.03)
    rate = np.full(260, 1e-3)
    quiet = {"norm_input_msq": np.full(260, 3.0), "learning_rate": rate}
    (alert,) = alerts_of(AttentionBlowup(), run(logit, sharpens(logit), **quiet))
    assert [phrase.split(":")[0] for phrase in alert.ruled_out] == [
        "one odd token or head",
        "a rising learning rate",
        "a residual stream that grows",
    ]
    loud = {"norm_input_msq": 3 * logit, "learning_rate": rate * ramp(260, 150, 1.02, 1.0)}
    (alert,) = alerts_of(AttentionBlowup(), run(logit, np.full(260, 0.9), **loud))
    assert alert.ruled_out == ()
    assert "learning rate has risen" in alert.cause


def test_the_warning_foretells_when_entropy_is_gone() -> None:
    """H = .9 e^(-t/100) from step 150 on passes .1 at 150 + 100 ln 9 = 370."""
    logit = ramp(300, 150, 1.03)
    entropy = 0.9 * np.exp(-np.maximum(steps(300) - 150, 0) / 100)
    (alert,) = alerts_of(AttentionBlowup(), run(logit, entropy))
    assert alert.step == 228
    assert "entropy falls to .1 in about 142 steps" in alert.action


def test_inf_is_not_learnt_from() -> None:
    logit = ramp(300, 150, 1.03)
    broken = logit.copy()
    broken[[0, 60, 180, 215]] = np.inf
    entropy = sharpens(logit)
    assert told(alerts_of(AttentionBlowup(), run(broken, entropy))) == told(
        alerts_of(AttentionBlowup(), run(logit, entropy))
    )


def test_numbers_of_1000_are_4_nats_apart_in_bfloat16() -> None:
    assert [bfloat16_step(x) for x in (255.0, 256.0, 600.0, 1000.0, 1025.0)] == [1, 2, 4, 4, 8]


def test_its_memory_does_not_grow_with_the_run() -> None:
    detector = AttentionBlowup()
    for snapshot in run(0.1 * steps(1500), np.full(1500, 0.5)):
        detector.score(snapshot)
    assert len(detector._layers._long) + len(detector._layers._short) <= 40
