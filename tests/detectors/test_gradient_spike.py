"""Gradients that explode, jump or creep up are told of at their step; plateaus' ends, odd batches and noise are not."""

import numpy as np
import pytest

from stabmon.detectors.alarm import Alarm
from stabmon.detectors.arrays import Floats
from stabmon.detectors.gradient_spike import GradientSpike
from stabmon.records import BATCH_SIZE, EVALUATION, RESUME, Alert, Event
from tests.detectors.losses import autocorrelated
from tests.detectors.series import alerts_of, make_series, told

COUNT = 700
BLOOM = np.array([0.947, 2.39, 15.9, 145, 960])
"""Published gradient norms of BLOOM-176B from iteration 31215 on, after .242; the loss jumped with the last."""


def noise(scale: float = 0.1, count: int = COUNT, seed: int = 0) -> Floats:
    return np.asarray(np.exp(np.random.default_rng(seed).normal(0, scale, count)))


def alerts(norm: Floats, **more: Floats) -> list[Alert]:
    loss = 2.5 * noise(0.02, len(norm), seed=1)
    return alerts_of(GradientSpike(), make_series({"total_grad_sq": norm**2, "loss": loss} | more))


def said(norm: Floats, **more: Floats) -> list[tuple[int, str]]:
    return told(alerts(norm, **more))


def bloom(at: int = 500, share: float = 0.5) -> tuple[Floats, dict[str, Floats]]:
    norm = 0.242 * noise()
    norm[at - 1] = 0.242
    norm[at : at + 5] = BLOOM
    norm[at + 5 : at + 30] = np.geomspace(700, 0.242, 25)
    return norm, {"context_share": np.full(COUNT, share)}


def test_bloom_176b_is_called_three_steps_before_its_loss_jumped_and_critical_one_step_before() -> None:
    norm, more = bloom()
    first, second, end = alerts(norm, **more)
    assert (first.step, first.severity, first.since) == (502, "warning", 501)
    assert (second.step, second.severity, second.since) == (504, "critical", 501)
    assert second.evidence["total_grad_norm"] == pytest.approx(145)
    assert second.evidence["times"] == pytest.approx(145 / 0.242, rel=1e-4)
    assert end.state == "cleared"


def test_an_explosion_is_critical_on_a_plateau_too_and_nothing_less_is_told_there() -> None:
    norm, more = bloom(share=1e-3)
    assert said(norm, **more)[0] == (504, "critical")
    norm[502:505] = 2.39
    norm[505:] = 0.242
    assert said(norm, **more) == []


def test_an_explosion_is_seen_in_the_first_steps() -> None:
    norm = 10 * noise(count=60)
    norm[20:26] = 10 * 3.0 ** np.arange(1, 7)
    assert said(norm)[0] == (24, "critical")


@pytest.mark.parametrize(("times", "expected"), [(2.5, []), (4.0, [(302, "warning"), (314, "cleared")])])
def test_two_points_of_three_over_three_times_the_level_are_a_warning(
    times: float, expected: list[tuple[int, str]]
) -> None:
    norm = noise()
    norm[[300, 301, 303]] = times
    assert said(norm) == expected


def test_two_of_three_need_not_be_neighbours() -> None:
    norm = noise()
    norm[[300, 302]] = 5.0
    assert said(norm)[0] == (303, "warning")


def test_one_step_of_ten_times_the_level_is_an_info_and_of_five_times_nothing() -> None:
    norm = noise()
    norm[300] = 32.0
    assert said(norm) == [(301, "info"), (311, "cleared")]
    norm[300] = 5.0
    assert said(norm) == []


def test_an_info_becomes_a_warning_if_the_next_point_is_high_too() -> None:
    norm = noise()
    norm[300:303] = 32.0
    assert said(norm)[:2] == [(301, "info"), (302, "warning")]


def test_where_noise_is_wide_three_times_the_level_is_nothing() -> None:
    """Spread .5 and over: eight median absolute deviations are x15."""
    norm = noise(0.5)
    norm[300:303] = 5.0
    assert said(norm) == []


def test_a_rise_by_two_and_a_half_that_lasts_is_told_by_its_ranks_within_twelve_steps() -> None:
    norm = noise(0.3)
    norm[400:] *= 2.5
    ((step, severity), *_) = said(norm)
    assert severity == "warning"
    assert 404 <= step <= 412


def test_gradients_that_creep_up_by_three_per_cent_a_step_are_told_of_before_they_are_seven_times_as_large() -> None:
    norm = noise(0.15)
    norm[300:] *= 1.03 ** np.arange(COUNT - 300)
    first, *_ = alerts(norm)
    assert first.severity == "warning"
    assert 1.03 ** (first.step - 300) < 7


def test_a_block_whose_gradient_triples_for_good_is_named_though_the_total_hides_it() -> None:
    """Read every tenth step: block 1 has 1 % of the total's square; told within 15 readings."""
    norm = noise(0.05, 3000)
    sampled = np.arange(1, 3001) % 10 == 0
    blocks = np.stack([0.5 * noise(0.1, 3000, seed=s) for s in range(4)], axis=1)
    blocks[:, 1] *= np.where(np.arange(3000) >= 2000, 0.6, 0.2)
    rows = np.where(sampled[:, None], blocks**2, np.nan)
    first, *_ = alerts(norm, grad_sq=rows)
    assert (first.severity, first.layer) == ("warning", 1)
    assert 2030 <= first.since <= first.step <= 2150
    assert first.evidence["grad_norm"] == pytest.approx(0.3, rel=0.35)


def test_updates_are_judged_per_learning_rate() -> None:
    """A warm-up of 2,000 steps makes updates a thousand times as large."""
    count = 2500
    rate = 1e-3 * np.minimum(np.arange(1, count + 1) / 2000, 1)
    updates = np.stack([rate * noise(0.05, count, seed=s) for s in range(4)], axis=1)
    more = {"learning_rate": rate, "grad_sq": np.ones((count, 4))}
    assert said(noise(count=count), update_sq=updates**2, **more) == []
    updates[1000:, 2] *= 3
    found = alerts(noise(count=count), update_sq=updates**2, **more)
    assert found[0].layer == 2
    assert "update_norm" in found[0].evidence


def test_the_end_of_a_plateau_is_silent() -> None:
    """Gradients of five times the level for good, while context share grows from 1e-4 and the loss falls after it."""
    norm = noise(0.2)
    norm[400:] *= np.minimum(1.1 ** np.arange(COUNT - 400), 5)
    share = np.minimum(1e-4 * np.exp(0.05 * np.maximum(np.arange(COUNT) - 350, 0)), 0.5)
    loss = 3.1 - 0.8 * np.clip((np.arange(COUNT) - 440) / 100, 0, 1)
    assert said(norm, context_share=share, loss=loss * noise(0.02)) == []
    assert said(norm, context_share=np.full(COUNT, 0.5))[0][1] == "warning"


def test_gradients_that_grow_while_the_loss_falls_are_silent() -> None:
    norm = noise(0.2)
    norm[400:430] *= 5
    loss = (3.1 - 0.01 * np.maximum(np.arange(COUNT) - 380, 0)).clip(0.5) * noise(0.005)
    assert said(norm, loss=loss) == []
    assert said(norm)[0][1] == "warning"


@pytest.mark.parametrize(
    "norm",
    [
        noise(0.3, 3000),
        np.exp(0.3 * np.random.default_rng(1).standard_t(3, 3000).clip(-9, 7)),
        np.exp(0.3 * autocorrelated(np.random.default_rng(2).normal(size=3000))),
        50 * np.arange(1, 3001) ** -0.5 * noise(0.2, 3000),
        np.arange(1, 3001) ** 0.3 * noise(0.2, 3000),
        np.full(3000, 1.0),
    ],
    ids=["Gaussian", "t3", "AR(.5)", "falling", "rising as t^.3", "constant"],
)
def test_healthy_shapes_have_no_warning(norm: Floats) -> None:
    assert [what for _, what in said(norm) if what in ("warning", "critical")] == []


def test_a_level_that_stays_is_told_once() -> None:
    norm = noise()
    norm[300:] *= 6
    assert said(norm) == [(302, "warning"), (375, "cleared")]


def test_a_jump_of_the_learning_rate_explains_a_rise_and_a_smooth_schedule_does_not() -> None:
    norm, rate = noise(), np.full(COUNT, 1e-4)
    norm[400:450] *= 4
    assert said(norm, learning_rate=rate)[0] == (402, "warning")
    rate[400:] = 1e-3
    assert said(norm, learning_rate=rate) == []
    smooth = 1e-3 * np.cos(np.linspace(0, np.pi / 2 - 0.01, COUNT))
    assert said(norm, learning_rate=smooth)[0] == (402, "warning")


@pytest.mark.parametrize(("kind", "told_of"), [(RESUME, 0), (BATCH_SIZE, 0), (EVALUATION, 1)])
def test_a_resume_and_another_batch_size_explain_a_rise(kind: str, told_of: int) -> None:
    alarm = Alarm(GradientSpike(), "run")
    norm, found = noise(), list[Alert]()
    norm[400:450] *= 4
    for snapshot in make_series({"total_grad_sq": norm**2}):
        if snapshot.step == 401:
            alarm.notice(Event(401, 0.0, kind, {}))
        found += [alert for alert in alarm.judge(snapshot) if alert.state == "raised"]
    assert len(found) == told_of


@pytest.mark.parametrize(("resumed", "told_of"), [(True, 0), (False, 1)])
def test_64_points_after_a_resume_are_not_judged_also_where_the_layout_is_another(resumed: bool, told_of: int) -> None:
    """A level of 50 points is known by then, of the new layout."""
    alarm, norm = Alarm(GradientSpike(), "run"), noise()
    norm[450:460] *= 6
    before = make_series({"total_grad_sq": norm[:400] ** 2})
    after = make_series({"total_grad_sq": norm[400:] ** 2, "loss": noise(0.02, 300)}, first=401)
    found = [alert for snapshot in before for alert in alarm.judge(snapshot)]
    if resumed:
        alarm.notice(Event(401, 0.0, RESUME, {}))
    found += [alert for snapshot in after for alert in alarm.judge(snapshot) if alert.state == "raised"]
    assert len(found) == told_of


def test_steps_that_a_loss_scaler_skipped_and_infinite_norms_change_nothing() -> None:
    norm, skipped = noise(), np.zeros(COUNT)
    norm[[400, 401, 500, 501]] = [1e4, 1e4, np.inf, np.nan]
    skipped[400:402] = 1
    assert said(norm, skipped_steps=skipped) == []
    assert said(norm)[0] == (401, "info")


@pytest.mark.parametrize("scale", [1e-6, 1e6])
def test_the_scale_of_gradients_changes_nothing(scale: float) -> None:
    norm, more = bloom()
    assert said(scale * norm, **more) == said(norm, **more) != []


def test_what_was_ruled_out_comes_from_readings() -> None:
    norm, more = bloom()
    quiet, *_ = alerts(norm, **more, learning_rate=np.full(COUNT, 1e-3))
    assert [reason.split(":")[0] for reason in quiet.ruled_out] == [
        "a change of the learning rate",
        "the end of a plateau",
        "batches unlike the others",
    ]
    loss = np.where((np.arange(COUNT) >= 496) & (np.arange(COUNT) < 510), 5.0, 2.5)
    loud, *_ = alerts(norm, loss=loss)
    assert loud.ruled_out == ()
    assert "The loss rose with it" in loud.cause


def test_a_run_that_is_stopped_and_shown_its_last_2000_steps_says_the_same() -> None:
    norm = noise(0.2, 3200)
    norm[2600:2620] *= 6
    norm[2900:] *= 2.5
    snapshots = make_series({"total_grad_sq": norm**2})
    whole = told(alerts_of(GradientSpike(), snapshots))
    assert whole != []
    assert told(alerts_of(GradientSpike(), snapshots[500:])) == whole
