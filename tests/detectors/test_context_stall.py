"""The stall's measured shapes, each with the steps at which it is spoken of."""

import numpy as np
import pytest

from stabmon.detectors.alarm import Alarm
from stabmon.detectors.arrays import Floats
from stabmon.detectors.context_stall import ContextStall
from stabmon.detectors.stall_readings import Rate
from stabmon.records import Alert, Snapshot
from tests.detectors.series import alerts_of, make_series, placed, told

NAN = float("nan")

# Measured: 8 layers, d = 128, Adam, lr 1e-3, no warm-up (Markov data).
POST_LN = {1: 0.47, 2: 0.077, 3: 0.022, 4: 0.0064, 8: 3.4e-4, 13: 2.8e-5, 19: 3.9e-6, 25: 1.1e-6, 45: 7e-7, 400: 7e-10}
# The same network on real text, seed 0.
TEXT = {1: 0.47, 3: 1.8e-3, 10: 6.6e-6, 20: 2.1e-7, 30: 4.9e-8, 60: 2.2e-8, 120: 1.1e-8, 400: 8e-9}
PRE_LN = {1: 0.68, 2: 0.42, 3: 0.27, 4: 0.21, 8: 0.16, 13: 0.27, 19: 0.73, 25: 0.81, 400: 0.81}
# lr 5e-4: lowest at 1.2e-5, turns at step 170, the loss moves at 277.
DELAYED = {1: 0.47, 4: 0.05, 20: 2e-4, 60: 3e-5, 130: 1.2e-5, 165: 1.2e-5, 277: 0.05, 320: 0.6, 400: 0.7}


def along(shape: dict[int, float], count: int = 400) -> Floats:
    """Log-linear between the measured steps, float[count] from step 1 on."""
    at = sorted(shape)
    return np.asarray(np.exp(np.interp(np.arange(1, count + 1), at, np.log([shape[step] for step in at]))))


def a_run(
    share: Floats, *, loss: Floats | float = 3.1, unigram: float = 3.1, bigram: float = 2.4, **more: Floats
) -> list[Snapshot]:
    """A run of one unigram and bigram loss; a loss that is one number comes down to it from 2.5 above in ten steps."""
    count = len(share)
    down = 2.5 * np.exp(-np.arange(count) / 3)
    rows: dict[str, Floats] = {
        "context_share": share,
        "loss": down + loss if isinstance(loss, float) else loss,
        "uniform_loss": np.full(count, 5.55),
        "unigram_loss": np.full(count, unigram),
        "bigram_loss": np.full(count, bigram),
        "learning_rate": np.full(count, 1e-3),
        "token_similarity": 1 - np.outer(share, np.linspace(1, 0.5, 8)),
    }
    return make_series({**rows, **more})


def learning_from(step: int, count: int = 400) -> Floats:
    """Down to the unigram loss, and half a nat further over the 50 steps from that one on."""
    t = np.arange(1, count + 1)
    return np.asarray(3.1 + 2.5 * np.exp(-(t - 1) / 3) - 0.5 * np.clip((t - step) / 50, 0, 1))


def said(snapshots: list[Snapshot]) -> list[tuple[int, str]]:
    return told(alerts_of(ContextStall(), snapshots))


def test_the_measured_stall_is_warned_of_when_s_falls_under_2e_6_and_called_critical_within_80_steps() -> None:
    alerts = alerts_of(ContextStall(), a_run(along(POST_LN)))
    assert told(alerts) == [(24, "warning"), (86, "critical")]
    assert [a.since for a in alerts] == [11, 11]


def test_the_deeper_stall_on_real_text_is_warned_of_at_step_15_and_called_critical_at_step_57() -> None:
    assert said(a_run(along(TEXT))) == [(15, "warning"), (57, "critical")]


def test_the_first_line_is_the_action_and_the_cost_of_waiting() -> None:
    warning, critical = alerts_of(ContextStall(), a_run(along(POST_LN)))
    assert warning.headline == (
        "run is not learning: every token gets the same answer since step 11. "
        "Restart with lr <= 3e-4 or warm-up; nothing is lost yet"
    )
    assert critical.headline.startswith(
        "run will not learn at lr 1e-3: every token gets the same answer since step 11."
    )


def test_late_alerts_count_what_was_lost() -> None:
    share = along({1: 0.5, 300: 0.5, 320: 1e-5, 400: 1e-7})
    (alert,) = alerts_of(ContextStall(), a_run(share))
    assert alert.action.endswith("; 33 steps are lost, and so is every further one")
    sudden = a_run(np.where(np.arange(1, 401) < 200, 0.5, 1e-8))
    assert alerts_of(ContextStall(), sudden)[0].action.endswith("; 1 step is lost, and so is every further one")


def test_an_alert_carries_its_numbers_by_name_and_the_norm_where_tokens_are_most_alike() -> None:
    (alert, _) = alerts_of(ContextStall(), a_run(along(POST_LN)))
    assert (alert.layer, alert.site) == (7, "layers.7.norm")
    assert alert.evidence["context_share"] == pytest.approx(along(POST_LN)[23], rel=1e-4)
    assert alert.evidence["bigram_gap"] == pytest.approx(0.7, abs=1e-6)
    assert alert.evidence["unigram_loss"] == pytest.approx(3.1, abs=1e-6)
    assert "0.70 nats" in alert.cause
    assert alert.remedies[0].startswith("Restart with lr <= 3e-4, or with a warm-up of 300 steps or more")
    assert "cut the learning rate x10 at once, to lr <= 1e-4" in alert.remedies[1]


def test_the_early_dip_of_pre_ln_is_silent() -> None:
    assert said(a_run(along(PRE_LN))) == []
    assert said(a_run(along({1: 0.5, 10: 5e-3, 20: 8e-3, 100: 0.2, 400: 0.5}))) == []


def test_nothing_to_learn_is_silent_however_deep_the_share_falls() -> None:
    assert said(a_run(along({1: 0.47, 50: 1e-7, 400: 2e-8}), bigram=3.095)) == []


def test_a_run_that_learns_is_silent_whatever_its_share() -> None:
    assert said(a_run(along(POST_LN), loss=2.5)) == []


def test_a_run_from_pretrained_weights_is_not_taken_for_one_that_does_not_begin_to_learn() -> None:
    started = np.full(400, 3.1)
    assert said(a_run(along(POST_LN), loss=started)) == [(24, "warning"), (86, "critical")]
    assert said(a_run(along(POST_LN), loss=started, pretrained=np.ones(400))) == []


def test_a_run_from_pretrained_weights_that_loses_what_they_knew_is_told_so() -> None:
    loss = np.concatenate([np.full(50, 2.0), np.full(350, 3.2)])
    alerts = alerts_of(ContextStall(), a_run(along(POST_LN), loss=loss, pretrained=np.ones(400)))
    assert told(alerts) == [(55, "warning"), (85, "critical")]  # thirty steps after
    assert "has lost what it had learnt" in alerts[0].action


def test_a_shallow_plateau_that_resolves_is_an_info_after_60_steps_and_nothing_worse() -> None:
    loss = np.interp(np.arange(1, 401), [1, 277, 320, 400], [3.1, 3.1, 2.2, 1.9])
    alerts = alerts_of(ContextStall(), a_run(along(DELAYED), loss=loss))
    assert [(a.step, a.severity, a.state) for a in alerts] == [(95, "info", "raised"), (234, "info", "cleared")]
    assert alerts[0].action.startswith("is on a plateau that may end by itself. Wait until step 835: every token")


def test_a_share_that_sinks_slowly_is_an_info_however_deep_until_it_is_deeper_than_what_resolves() -> None:
    """12 layers, lr 5e-4, on Markov data: under 2e-6 after 130 steps, and it turns at step 290."""
    slow = {1: 0.5, 20: 1e-4, 50: 3e-5, 100: 6e-6, 150: 2e-6, 200: 1.2e-6, 290: 1.1e-6}
    assert said(a_run(along({**slow, 350: 0.1, 400: 0.5}))) == [(80, "info"), (335, "cleared")]
    assert said(a_run(along({**slow, 350: 1e-8, 400: 1e-9})))[:3] == [(80, "info"), (351, "warning"), (381, "critical")]


def test_twelve_layers_that_sank_slowly_come_back_from_5e_8_and_are_an_info_to_the_end() -> None:
    """Markov data, lr 5e-4: the share turns at step 500, the loss moves at 620. For 60 steps it is under 1e-7."""
    slow = {1: 0.5, 20: 6e-5, 60: 4.5e-6, 120: 1.6e-6, 160: 6e-7, 300: 1.6e-7, 400: 2.4e-7, 470: 9e-8, 500: 4.7e-8}
    share = along({**slow, 530: 9e-8, 540: 4.1e-7, 580: 1.1e-5, 600: 0.022, 640: 0.36, 700: 0.8}, 700)
    assert said(a_run(share)) == [(79, "info"), (601, "cleared")]


def test_a_plateau_that_has_lasted_800_steps_is_a_warning() -> None:
    assert said(a_run(along({1: 0.5, 20: 5e-5, 900: 1e-5}, 900))) == [(79, "info"), (819, "warning")]


def test_a_plateau_as_deep_as_6e_6_that_ends_at_step_110_is_not_called_critical() -> None:
    """Real text, lr 5e-4."""
    share = along(
        {1: 0.5, 6: 2e-3, 10: 2.5e-4, 14: 8e-5, 20: 2.6e-5, 40: 6.6e-6, 70: 6e-6, 80: 2e-5, 100: 3e-4, 120: 0.06}
    )
    assert said(a_run(share, loss=learning_from(110))) == [(74, "info"), (114, "cleared")]


def test_a_plateau_as_deep_as_4e_7_that_ends_is_not_called_critical() -> None:
    """Real text, lr 7e-4."""
    shape = {
        1: 0.5,
        3: 5.6e-3,
        10: 3.8e-5,
        20: 2.8e-6,
        30: 9.4e-7,
        38: 4.7e-7,
        80: 3.8e-7,
        110: 6e-7,
        122: 1.4e-6,
        250: 2.3e-3,
    }
    learning = learning_from(250)
    assert said(a_run(along(shape), loss=learning)) == [(25, "warning"), (129, "info"), (245, "cleared")]


def test_the_forecast_is_an_upper_bound_from_the_slope() -> None:
    """From 1e-5 at 2 % a step: ln(.1 / s) / .02 steps are left."""
    share = along({1: 0.5, 20: 1e-5, 60: 1e-5, 600: 1e-5 * np.exp(0.02 * 540)}, 300)
    info = next(a for a in alerts_of(ContextStall(), a_run(share)) if a.severity == "info")
    left = np.log(0.1 / share[info.step - 1]) / 0.02
    assert f"in at most {left:.0f} steps" in info.action


def test_a_failed_escape_from_1e_8_is_never_called_resolving() -> None:
    share = along({1: 0.5, 30: 1e-7, 100: 1e-8, 150: 3e-8, 300: 1e-13, 400: 1e-13})
    assert said(a_run(share)) == [(26, "warning"), (62, "critical")]


def test_an_attempt_to_escape_that_touches_1e_3_and_falls_back_is_neither_an_end_nor_a_forecast() -> None:
    """Real text, 6 layers, lr 2e-3."""
    shape = {1: 0.3, 10: 1e-5, 30: 1.2e-7, 50: 4.8e-8, 200: 2e-8, 260: 2.6e-8, 290: 1.3e-7, 300: 5e-7, 310: 1.4e-3}
    share = along({**shape, 313: 1e-3, 320: 2.8e-9, 400: 3e-10})
    assert said(a_run(share)) == [(19, "warning"), (65, "critical")]


def test_a_frozen_plateau_is_a_warning_for_good_and_says_so_where_it_is_seen_frozen() -> None:
    share = along({1: 0.5, 20: 1.5e-6, 400: 1.6e-6})
    assert said(a_run(share)) == [(21, "warning")]
    detector = ContextStall()
    for snapshot in a_run(share)[:200]:
        detector.score(snapshot)
    frozen = detector.explain(0)
    assert frozen.severity == "warning"
    assert frozen.action.startswith("is stuck: every token gets the same answer since step 14, no more and no less so.")
    assert "Restart with lr <= 3e-4 or warm-up" in frozen.action
    assert "neither falls nor grows back" in frozen.cause
    assert abs(frozen.evidence["context_share_slope"]) < 0.002


def test_without_targets_it_warns_and_says_that_it_does_not_know() -> None:
    nothing = np.full(400, NAN)
    alerts = alerts_of(
        ContextStall(), a_run(along(POST_LN), unigram_loss=nothing, bigram_loss=nothing, uniform_loss=nothing)
    )
    assert told(alerts) == [(24, "warning")]
    assert "unknown" in alerts[0].cause


def test_targets_that_nothing_tells_of_are_warned_of_and_told_apart_from_none() -> None:
    """Tags, or classes of texts: there is a unigram loss, and no other."""
    alerts = alerts_of(ContextStall(), a_run(along(POST_LN), bigram_loss=np.full(400, NAN)))
    assert told(alerts) == [(24, "warning")]
    assert "unknown (neither a neighbour nor a mean input" in alerts[0].cause


@pytest.mark.parametrize("every", [1, 10])
def test_classes_that_their_mean_inputs_tell_of_are_called_critical_as_text_is(every: int) -> None:
    mean = np.where(np.arange(400) % every == 0, 1.1, NAN)
    alerts = alerts_of(ContextStall(), a_run(along(POST_LN), bigram_loss=np.full(400, NAN), class_mean_loss=mean))
    assert told(alerts) == [(24, "warning"), (86, "critical")]
    critical = alerts[1]
    assert "the mean input of each class alone is worth 2.00 nats" in critical.cause
    assert critical.ruled_out[0] == "nothing to learn: the mean input of each class is worth 2.00 nats"
    assert critical.evidence["class_mean_gap"] == pytest.approx(2.0, abs=1e-5)


def test_classes_whose_mean_inputs_are_worth_nothing_may_be_told_by_more_and_are_warned_of() -> None:
    run = a_run(along(POST_LN), bigram_loss=np.full(400, NAN), class_mean_loss=np.full(400, 3.05))
    assert said(run) == [(24, "warning")]


def test_targets_that_cease_to_follow_the_inputs_are_a_fault_of_the_data_and_no_stall() -> None:
    """Markov data, labels shuffled from step 250 on: the bigram loss is not known any more, and s falls to 1e-6."""
    t = np.arange(1, 401)
    loss = np.interp(t, [1, 100, 249, 250, 257, 270], [4, 2, 1.6, 6.3, 4.3, 4.0])
    share = along({1: 0.5, 252: 0.9, 256: 0.06, 262: 5e-4, 270: 2.6e-5, 280: 5e-6, 400: 1e-6})
    bigram = np.where(t < 250, 1.4, NAN)
    assert said(a_run(share, loss=loss, unigram=4.0, bigram_loss=bigram)) == []
    assert said(a_run(share, loss=loss, unigram=4.0, bigram=1.4))[-1][1] == "critical"


def test_what_was_ruled_out_is_what_was_read() -> None:
    grads = np.tile(np.logspace(-6, 0, 8), (400, 1))  # norms from 1e-3 to 1
    alert = alerts_of(ContextStall(), a_run(along(POST_LN), grad_sq=grads))[0]
    assert alert.ruled_out == (
        "nothing to learn: the left neighbour is worth 0.70 nats",
        "learning: the loss is +0.00 nats from the unigram loss",
        "pretrained weights: the first loss was +2.50 nats from it",
        "a dip that passes: the lowest block's gradient is 1.0e-03 of the highest's",
        "a plateau that ends: the context share shrinks by 37 % a step",
    )
    nothing = np.full(400, NAN)
    alert = alerts_of(ContextStall(), a_run(along(POST_LN), unigram_loss=nothing, bigram_loss=nothing))[0]
    assert [phrase.split(":")[0] for phrase in alert.ruled_out] == ["a plateau that ends"]


def test_a_gradient_that_reaches_the_lowest_block_delays_the_warning_by_25_steps_and_keeps_it_from_critical() -> None:
    grads = np.tile(np.linspace(0.5, 1, 8) ** 2, (400, 1))
    alerts = alerts_of(ContextStall(), a_run(along(POST_LN), grad_sq=grads))
    assert told(alerts) == [(36, "warning")]
    assert alerts[0].since == 11


def test_a_dip_of_fifteen_steps_is_silent() -> None:
    """Pre-LN at lr 1e-2."""
    share = along({1: 0.5, 6: 1.2e-4, 10: 5.7e-5, 18: 8.3e-5, 25: 3.2e-4, 40: 4.4e-3, 50: 0.04, 400: 0.3})
    assert said(a_run(share, loss=learning_from(50))) == []


def test_a_cut_of_the_learning_rate_starts_the_trend_afresh_and_eases_the_alert_when_it_works() -> None:
    """Cut at step 60 by 10: nothing is critical before step 660. From step 100 on s grows by .0424 a step: it is at
    1e-7, where forecasts begin, at step 129, and at 1e-3 at step 346.
    """
    share = along({**TEXT, 60: 3e-8, 100: 3e-8, 120: 7e-8, 400: 0.01})
    rate = np.where(np.arange(1, 401) < 60, 1e-3, 1e-4)
    alerts = said(a_run(share, learning_rate=rate))
    assert alerts == [(15, "warning"), (57, "critical"), (69, "warning"), (142, "info"), (355, "cleared")]


def test_a_cut_that_does_not_help_is_critical_again_after_sixty_times_ten_steps() -> None:
    share = along({**TEXT, 1000: 1e-9}, 1000)
    rate = np.where(np.arange(1, 1001) < 60, 1e-3, 1e-4)
    alerts = alerts_of(ContextStall(), a_run(share, learning_rate=rate))
    assert told(alerts) == [(15, "warning"), (57, "critical"), (69, "warning"), (660, "critical")]
    assert "Wait for the cut of step 60 until step 660" in alerts[2].action


def test_a_warm_up_and_a_decay_are_no_cuts() -> None:
    t = np.arange(1, 401)
    cosine = 1e-3 * (1 + np.cos(np.pi * t / 405)) / 2
    assert said(a_run(along(POST_LN), learning_rate=cosine)) == [(24, "warning"), (86, "critical")]
    rate = np.where(t < 300, 1e-3 * t / 300, 1e-3 * (1 - (t - 300) / 250))
    assert said(a_run(along(POST_LN), learning_rate=rate)) == [(24, "warning"), (86, "critical")]


def test_where_dropout_holds_the_training_share_up_the_probe_tells() -> None:
    trained = np.maximum(along(TEXT), 5e-2)
    probed = np.where((np.arange(1, 401) <= 50) | (np.arange(1, 401) % 50 == 0), along(TEXT), NAN)
    noise = np.full((400, 8), 0.93)  # so much are tokens alike under it
    alerts = alerts_of(ContextStall(), a_run(trained, probe_context_share=probed, token_similarity=noise))
    assert told(alerts) == [(15, "warning"), (100, "critical")]  # read at step 50, then at 100
    assert "probe_context_share" in alerts[0].evidence


def test_in_bfloat16_rounding_holds_the_training_share_up_and_the_probe_tells() -> None:
    """Measured, 6 layers on text, lr 3e-3, under autocast: rounding leaves 4e-7 to 2e-6 of the training's share."""
    trained = along({1: 0.5, 5: 3e-5, 10: 2e-6, 20: 1e-6, 150: 6e-7, 400: 6e-7})
    probed = along({1: 0.5, 5: 2e-5, 10: 1e-7, 15: 8e-9, 20: 1e-9, 30: 2e-10, 100: 4e-11, 400: 1e-11})
    assert dict(said(a_run(trained))) == {11: "warning"}
    probed[50:][np.arange(51, 401) % 50 > 0] = NAN
    assert said(a_run(trained, probe_context_share=probed)) == [(10, "warning"), (26, "critical")]


def test_a_run_that_had_learnt_and_collapses_is_sent_back_to_a_checkpoint() -> None:
    loss = np.interp(np.arange(1, 401), [1, 100, 200, 205, 400], [3.1, 2.2, 2.0, 3.1, 3.1])
    alert, critical = alerts_of(ContextStall(), a_run(along({1: 0.5, 200: 0.5, 220: 1e-6, 400: 1e-7}), loss=loss))
    assert [(a.step, a.severity) for a in (alert, critical)] == [(211, "warning"), (241, "critical")]
    assert alert.headline.startswith("run has lost what it had learnt")
    # The share falls under its line at step 210; 203 is the last step whose loss knew what had been learnt.
    assert alert.since == 210
    assert "Go back to a checkpoint before step 203; 8 steps are lost" in alert.action


def test_a_run_that_had_learnt_and_is_back_within_thirty_steps_is_not_critical() -> None:
    """A spike that heals by itself."""
    loss = np.interp(np.arange(1, 401), [1, 100, 200, 205, 220, 240, 400], [3.1, 2.2, 2.0, 5.0, 3.1, 2.2, 2.0])
    share = along({1: 0.5, 200: 0.5, 205: 1e-5, 220: 1e-4, 235: 0.1, 400: 0.5})
    assert "critical" not in dict(said(a_run(share, loss=loss))).values()


def test_the_last_2000_steps_are_all_it_needs_to_go_on_after_a_stop() -> None:
    """It falls back at step 2,100, and is stopped before, amid and after its warning."""
    loss = np.interp(np.arange(1, 2401), [1, 100, 2100, 2105], [3.1, 2.2, 2.0, 3.2])
    run = a_run(along({1: 0.5, 2100: 0.5, 2120: 1e-6, 2400: 1e-7}, 2400), loss=loss)
    whole = alerts_of(ContextStall(), run)
    assert told(whole) == [(2111, "warning"), (2141, "critical")]
    for stop in (2050, 2108, 2125, 2200):
        judge = Alarm(ContextStall(), "run").judge
        for snapshot in run[stop - 2000 : stop]:
            judge(snapshot)
        went_on = [alert for snapshot in run[stop:] for alert in judge(snapshot)]
        assert [a.message.split("Ruled out")[0] for a in went_on] == [
            a.message.split("Ruled out")[0] for a in whole if a.step > stop
        ]  # what the run began with is not among the last 2000


@pytest.mark.parametrize("shift", [-2.0, 5.0])
def test_a_constant_on_all_losses_changes_nothing(shift: float) -> None:
    plain = said(a_run(along(POST_LN)))
    assert said(a_run(along(POST_LN), loss=3.1 + shift, unigram=3.1 + shift, bigram=2.4 + shift)) == plain


@pytest.mark.parametrize("seed", range(5))
def test_noise_of_a_third_in_s_and_of_a_tenth_in_the_loss_moves_no_verdict_by_more_than_15_steps(seed: int) -> None:
    rng = np.random.default_rng(seed)
    share = along(TEXT) * np.exp(rng.normal(0, 0.3, 400))
    loss = 3.1 + 2.5 * np.exp(-np.arange(400) / 3) + rng.normal(0, 0.1, 400)
    steps, severities = zip(*said(a_run(share, loss=loss)), strict=True)
    assert severities == ("warning", "critical")
    assert np.abs(np.subtract(steps, (15, 57))).max() <= 15


def test_it_clears_once_the_share_has_been_back_for_ten_steps() -> None:
    share = along({1: 0.5, 20: 1.5e-6, 100: 1.5e-6, 101: 0.5, 400: 0.5})
    assert said(a_run(share, loss=learning_from(101))) == [(21, "warning"), (110, "cleared")]


def test_a_share_that_is_infinite_or_missing_is_left_out() -> None:
    share = along(POST_LN)
    share[[13, 14, 30]] = [np.inf, NAN, np.inf]
    assert said(a_run(share))[0] == (24, "warning")


def test_readings_every_tenth_step_are_enough() -> None:
    """As after a resume: no dense start."""
    share = along({1: 0.5, 200: 0.5, 220: 5e-8, 1000: 1e-8}, 1000)
    sparse: list[Alert] = alerts_of(ContextStall(), a_run(share)[9::10])
    assert told(sparse) == [(230, "warning"), (260, "critical")]


def test_the_end_of_a_schedule_is_no_cut_that_is_worth_waiting_for() -> None:
    """A learning rate of 0, or one that is not finite, sets no step until which to wait."""
    rate = Rate()
    for step, snapshot in enumerate(make_series({"learning_rate": [1e-3, 1e-3, 0.0, np.inf, 0.0]}), 1):
        assert not rate.read(snapshot), step
    assert (rate.top, rate.cut_until) == (pytest.approx(1e-3), 0)


def relapsed(back_until: int = 400, count: int = 400) -> Floats:
    """Learns to .4 under the unigram loss, is thrown above it after step 200, and returns to it; float[count]."""
    t = np.arange(1, count + 1)
    loss = np.interp(t, [1, 100, 200, 201, 230], [5.6, 2.8, 2.7, 5.5, 3.2])
    return np.where(t > back_until, 2.7, loss)


@pytest.mark.parametrize("share", [0.02, 0.2])
def test_a_run_that_is_back_at_the_unigram_loss_has_lost_what_it_had_learnt_though_its_tokens_differ(
    share: float,
) -> None:
    """Real text, Pre-LN, a learning rate that jumps to its hundredfold. The median of nine turns at step 205."""
    run = a_run(along({1: 0.5, 200: 0.2, 202: share, 400: share}), loss=relapsed())
    warning, critical = alerts_of(ContextStall(), run)
    assert told([warning, critical]) == [(225, "warning"), (265, "critical")]
    assert (warning.since, critical.since) == (201, 201)
    assert critical.headline == (
        "run has lost what it had learnt: since step 201 it does no better than the frequencies of its targets. Go "
        "back to a checkpoint before step 200; 65 steps are lost, and so is every further one"
    )
    assert critical.evidence["loss_above_unigram"] == pytest.approx(0.1, abs=1e-5)


def test_a_rise_over_the_unigram_loss_that_is_over_within_20_steps_is_no_relapse_and_one_of_50_a_warning() -> None:
    healthy = along({1: 0.5, 400: 0.2})
    assert said(a_run(healthy, loss=relapsed(back_until=220))) == []
    assert said(a_run(healthy, loss=relapsed(back_until=250))) == [(225, "warning"), (264, "cleared")]


def test_a_run_that_had_been_a_fifth_of_a_nat_under_the_unigram_loss_and_is_back_has_lost_that() -> None:
    """As plateaus that end never are once they are so far under it; the median of nine turns at step 205."""
    after = np.arange(1, 401) > 200
    share = along({1: 0.5, 400: 0.2})
    assert said(a_run(share, loss=np.where(after, 3.05, 2.88))) == [(225, "warning"), (265, "critical")]
    assert said(a_run(share, loss=np.where(after, 3.05, 2.92))) == []  # .18 under it
    assert said(a_run(share, loss=np.where(after, 2.98, 2.88))) == []  # still .12 under it
    warning, _ = alerts_of(ContextStall(), a_run(share, loss=np.where(after, 3.05, 2.88)))
    assert warning.action.startswith("has lost what it had learnt: since step 201")
    assert "Go back to a checkpoint before step 200; 25 steps are lost" in warning.action


def test_no_relapse_where_there_is_nothing_left_to_learn_or_targets_have_ceased_to_follow() -> None:
    healthy = along({1: 0.5, 400: 0.2})
    shuffled = np.where(np.arange(1, 401) <= 200, 2.4, NAN)
    assert said(a_run(healthy, loss=relapsed(), bigram_loss=shuffled)) == []
    assert said(a_run(healthy, loss=relapsed(), bigram_loss=np.where(np.arange(1, 401) <= 200, 2.4, 3.05))) == []


def test_a_share_that_came_back_and_a_loss_that_did_not_follow_is_a_plateau_that_has_not_ended() -> None:
    """Real text, Post-LN at lr 4e-3: s is over 1e-3 from step 37 on, and .01 to .2 to the end."""
    share = along({1: 0.44, 4: 1.4e-3, 10: 4e-5, 20: 1.8e-5, 29: 1.8e-4, 44: 0.017, 60: 0.15, 400: 0.01})
    back = int(np.flatnonzero((share > 1e-3) & (np.arange(400) > 20))[0]) + 1
    warning, critical = alerts_of(ContextStall(), a_run(share))
    assert told([warning, critical]) == [(back + 150, "warning"), (back + 300, "critical")]
    assert warning.action == (
        f"has not left its plateau: tokens get different answers again since step {back}, and its loss is still that "
        f"of the frequencies of its targets. Restart with lr <= 3e-4 or warm-up; {back + 150} steps are lost, and so "
        "is every further one"
    )


def test_after_a_cut_of_the_learning_rate_the_loss_is_given_the_time_that_the_share_is() -> None:
    """By 10 at step 60: 600 steps. By 2.5: until step 210, and 150 from there."""
    share = along({1: 0.44, 4: 1.4e-3, 10: 4e-5, 20: 1.8e-5, 29: 1.8e-4, 44: 0.017, 60: 0.15, 400: 0.01})
    t = np.arange(1, 401)
    assert said(a_run(share, learning_rate=np.where(t < 60, 1e-3, 1e-4))) == []
    assert said(a_run(share, learning_rate=np.where(t < 60, 1e-3, 4e-4))) == [(360, "warning")]


def test_a_share_that_came_back_and_a_loss_that_follows_within_117_steps_is_silent() -> None:
    """As the longest of those that ended."""
    share = along({1: 0.44, 4: 1.4e-3, 10: 4e-5, 20: 1.8e-5, 29: 1.8e-4, 37: 1e-3, 60: 0.15, 400: 0.3})
    loss = 3.1 + 2.5 * np.exp(-np.arange(400) / 3) - np.where(np.arange(400) > 37 + 117, 0.2, 0.0)
    assert said(a_run(share, loss=loss)) == []
    assert said(a_run(share, bigram=3.05)) == []  # nothing to learn


def test_the_probe_under_1e_8_for_ten_steps_is_critical_though_batches_hold_the_training_share_up() -> None:
    """Real text, GPT-2's initialisation at lr 5e-3."""
    trained = along({1: 0.87, 3: 0.05, 5: 4.6e-4, 7: 2.4e-5, 10: 1.8e-6, 15: 2.1e-7, 20: 1.3e-7, 400: 1.3e-7})
    probed = along({1: 0.9, 4: 8.6e-4, 6: 7.8e-6, 10: 9.8e-8, 15: 1.7e-8, 19: 8.8e-9, 29: 6e-9, 400: 6e-9})
    assert said(a_run(trained, probe_context_share=probed)) == [(10, "warning"), (30, "critical")]
    assert said(a_run(trained, probe_context_share=probed * 10)) == [(11, "warning")]


def test_the_probe_under_1e_6_within_40_steps_is_a_warning_though_batches_hold_the_training_share_up() -> None:
    """Real text at lr 1.5e-3: a first plateau as of those that end, and the probe's share a half of theirs."""
    trained = along({1: 0.44, 12: 9e-5, 20: 1.1e-5, 40: 2.7e-6, 400: 2.7e-6})
    probed = along({1: 0.44, 10: 1e-4, 20: 9.8e-6, 30: 2.3e-6, 42: 9.8e-7, 400: 6.5e-7})
    assert said(a_run(trained, probe_context_share=probed)) == [(43, "warning")]
    plateau = [(72, "info")]
    assert said(a_run(trained, probe_context_share=np.maximum(probed, 1.1e-6))) == plateau
    late = np.where(np.arange(1, 401) <= 52, np.maximum(probed, 1.1e-6), probed)
    assert said(a_run(trained, probe_context_share=late)) == plateau


def test_single_steps_at_which_all_tokens_are_alike_again_are_no_other_collapse() -> None:
    """Real text, GPT-2's initialisation at lr 5e-3: s is 1e-12 in one step, and over .01 in the next."""
    share = along({1: 0.44, 4: 1.4e-3, 10: 4e-5, 20: 1.8e-5, 36: 9e-4, 37: 2e-3, 60: 0.15, 400: 0.01})
    share[[99, 149]] = 1e-12
    assert said(a_run(share)) == [(187, "warning"), (337, "critical")]


def test_a_share_that_came_back_over_layers_without_a_gradient_is_told_at_once() -> None:
    """Real text, Post-LN at lr 4e-3: from step 80 on the lowest block gets .001 of the highest's gradient. A warning
    at the second such reading, critical at the third; not if every other one is as it should be.
    """
    share = along({1: 0.44, 4: 1.4e-3, 10: 4e-5, 20: 1.8e-5, 29: 1.8e-4, 44: 0.017, 60: 0.15, 400: 0.01})
    grads = np.full((400, 8), NAN)
    grads[9::10] = 1.0
    grads[79::10, 0] = 1e-6  # squares
    warning, critical = alerts_of(ContextStall(), a_run(share, grad_sq=grads))
    assert told([warning, critical]) == [(90, "warning"), (100, "critical")]
    assert critical.evidence["lower_upper_grad_ratio"] == pytest.approx(1e-3)
    assert "the lowest block gets 0.1% of the highest's gradient" in critical.cause
    grads[89::20] = 1.0
    assert said(a_run(share, grad_sq=grads)) == [(185, "warning"), (335, "critical")]


# The same network at lr 2e-3 on real text: a share that turns, and falls again after step 150.
TURNS = along({1: 0.5, 13: 1e-4, 40: 8e-6, 60: 4e-6, 100: 6e-6, 150: 1e-4, 200: 1e-5, 400: 1e-7})
# Mean square of its last norm's input.
FILLS = along({1: 1.3, 10: 3.4, 20: 5.6, 40: 8.4, 60: 10.4, 80: 12, 100: 13.4, 400: 40})


def swamped(share: Floats, length: Floats, placement: str = "post", loss: Floats | float = 3.1) -> list[Snapshot]:
    run = a_run(share, loss=loss, norm_input_msq=np.full((400, 8), 4.0), final_norm_input_msq=length)
    return placed(run, placement)


def test_a_stream_swamped_by_the_last_block_soon_after_the_collapse_is_critical_though_the_share_turns() -> None:
    """It is over 8 from step 38 on, and over 11 from step 67: so 80 steps after the collapse, at step 93."""
    warning, critical = alerts_of(ContextStall(), swamped(TURNS, FILLS))
    assert told([warning, critical]) == [(48, "warning"), (93, "critical")]
    assert critical.action.startswith("will not learn at lr 1e-3: every token gets the same answer since step 13.")
    assert critical.evidence["final_norm_input_msq"] == pytest.approx(12.9, abs=0.01)
    assert "a plateau that ends: of the stream 1/13 is left in what the last norm reads" in critical.ruled_out


# A Markov chain at lr 3e-3, where most seeds stall, and its last norm's input: this one is over 1e-3 at step 120, and
# learns from step 132 on.
ESCAPES = along({1: 0.44, 9: 1e-4, 20: 1.9e-6, 35: 3.8e-7, 50: 2.5e-7, 120: 1e-3, 140: 0.5, 400: 0.5})
LIKE_A_STALL = along({1: 1.3, 20: 7.9, 35: 11.3, 55: 13.8, 80: 16.1, 100: 18, 120: 18.6, 140: 5, 400: 4})


def test_a_share_that_grows_back_fast_when_a_swamped_stream_is_judged_is_warned_of_and_no_more() -> None:
    """By 12 % a step from step 50 on; by 4 % it would be critical 80 steps after the collapse."""
    escapes = swamped(ESCAPES, LIKE_A_STALL, loss=learning_from(132))
    assert said(escapes) == [(21, "warning"), (161, "cleared")]
    after = np.maximum(np.arange(1, 401) - 50.0, 0)
    slower = np.where(after > 0, 2.5e-7 * 1.04**after, ESCAPES)
    assert said(swamped(slower, LIKE_A_STALL))[:2] == [(21, "warning"), (89, "critical")]


def test_a_stream_that_fills_slowly_or_is_not_summed_before_the_norm_leaves_the_verdict_to_the_share() -> None:
    """As at lr 1.5e-3, where the share comes back for good: 8 from step 64 on, 11 from 114. DeepNorm's begins at 4."""
    slowly = along({1: 1.3, 30: 5.3, 60: 7.8, 80: 8.9, 100: 10, 120: 11.5, 400: 40})
    for run in (swamped(TURNS, slowly), swamped(TURNS, FILLS, "pre"), swamped(TURNS, FILLS + 2.7)):
        assert said(run) == said(a_run(TURNS))


# Real text at lr 2e-3: the share is back over 1e-3 at step 45, at .1 to the end.
HOVERS = along({1: 0.44, 4: 1.4e-3, 10: 9e-5, 20: 1.8e-5, 29: 1.8e-4, 45: 1.1e-3, 60: 0.1, 400: 0.1})


def test_a_stream_that_is_full_is_told_where_the_share_is_back_and_the_loss_hovers_over_its_line() -> None:
    """.12 under the unigram loss, as the last norm's input grows to 14 at step 180 and 25 at 250."""
    length = along({1: 1.4, 100: 10, 180: 14, 250: 25, 400: 25})
    share = np.where(np.arange(1, 401) < 100, np.minimum(HOVERS, 9e-4), HOVERS)  # back at step 100
    hovers = a_run(share, loss=2.98)
    assert said(hovers) == [(250, "warning"), (400, "critical")]
    told_of = alerts_of(ContextStall(), swamped(share, length, loss=2.98))
    assert told(told_of) == [(190, "warning"), (400, "critical")]
    assert told_of[0].action.startswith("has not left its plateau: tokens get different answers again since step 100")
    assert "a plateau that ends: of the stream 1/15 is left in what the last norm reads" in told_of[0].ruled_out
    assert said(swamped(share, length, loss=2.92)) == []  # .18 under the unigram loss
    assert said(swamped(share, np.minimum(length, 13.9), loss=2.98)) == said(hovers)
    assert said(swamped(share, length, "pre", loss=2.98)) == said(hovers)


def test_a_run_that_had_begun_to_learn_and_slips_back_is_told_where_its_stream_has_filled_so_far() -> None:
    """.17 under the unigram loss until step 200; the median of nine turns at step 205, and the last norm's input is 11
    from step 120 on."""
    length = along({1: 1.4, 60: 7, 120: 11.1, 400: 11.1})
    slips = np.where(np.arange(1, 401) > 200, 3.05, 2.93)
    assert said(swamped(HOVERS, length, loss=slips)) == [(215, "warning")]
    assert said(swamped(HOVERS, np.minimum(length, 10.9), loss=slips)) == said(a_run(HOVERS, loss=slips))
    assert said(swamped(HOVERS, length, loss=np.full(400, 3.0))) == said(a_run(HOVERS, loss=np.full(400, 3.0)))


def test_what_is_critical_by_one_rule_is_so_though_another_warns() -> None:
    """.23 under the unigram loss until step 200; from 200 on the lowest block has no gradient. By the relapse alone
    it would be critical at step 265."""
    grads = np.full((400, 8), NAN)
    grads[9::10] = 1.0
    grads[199::10, 0] = 1e-6  # squares
    loss = np.where(np.arange(1, 401) > 200, 3.05, 2.87)
    assert said(a_run(HOVERS, loss=loss)) == [(225, "warning"), (265, "critical")]
    assert said(a_run(HOVERS, loss=loss, grad_sq=grads)) == [(215, "warning"), (225, "critical")]


def test_a_swamped_stream_is_critical_where_the_share_has_come_back_and_over_once_the_loss_follows() -> None:
    """Real text at lr 4e-3."""
    share = along({1: 0.44, 4: 1.4e-3, 10: 4e-5, 20: 1.8e-5, 29: 1.8e-4, 37: 1e-3, 60: 0.15, 400: 0.01})
    length = along({1: 1.4, 10: 6, 20: 10.3, 30: 13.3, 400: 30})
    warning, critical = alerts_of(ContextStall(), swamped(share, length))
    assert told([warning, critical]) == [(26, "warning"), (89, "critical")]
    assert critical.action.startswith("has not left its plateau")
    assert "a plateau that ends: of the stream 1/15 is left in what the last norm reads" in critical.ruled_out
    assert said(swamped(share, length, loss=learning_from(100)))[-1][1] == "cleared"
    assert all(severity != "critical" for _, severity in said(swamped(share, length, loss=learning_from(20))))
