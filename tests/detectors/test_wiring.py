"""Faults of the implementation at their first steps, each by its own reading; what healthy models do is silent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from numpy.typing import ArrayLike

from stabmon.detectors.alarm import Alarm
from stabmon.detectors.arrays import Floats
from stabmon.detectors.wiring import Wiring
from stabmon.records import ARCHITECTURE, LEAK, NOT_SEEN, Alert, Event, Layout, Site, Snapshot
from tests.detectors.series import alerts_of, told

NAN = float("nan")
NOISE = np.random.default_rng(0).normal(0, 0.03, (2000, 2))
"""Of batches that are all new."""
PRE = ("pre",) * 8 + ("final",)
POST = ("post",) * 8
LARGE_START = [[0.44, 201, 264, 513, 605, 830, 909, 1141, 1208]]
"""Measured, Pre-LN: of weights four times too large, the first attention adds 201 to a stream of .44."""
PARTS = ("embed", "blocks.0", "blocks.1", "blocks.2", "blocks.3", "norm", "head")


def run(placed: Sequence[str] = PRE, steps: int = 30, first: int = 1, **rows: ArrayLike) -> list[Snapshot]:
    """A healthy language model, but for what is given: [steps] or [steps, sites]."""
    norms = [Site(f"norms.{i}", i // 2, "norm", kind) for i, kind in enumerate(placed)]
    parts = [Site(name, int(name[-1]) if name[-1].isdigit() else None) for name in PARTS]
    t = np.arange(1.0, steps + 1)[:, None]
    ones = np.ones((steps, len(PARTS)))
    flat: dict[str, ArrayLike] = {
        "loss": 2.0 + 3.5 * np.exp(-t / 40),
        "unigram_loss": 3.1 + NOISE[:steps, :1],
        "bigram_loss": 2.4 + NOISE[:steps, 1:],
        "pretrained": 0 * t,
        "learning_rate": 1e-3 + 0 * t,
        "norm_input_msq": np.ones((steps, 1)) * (np.arange(len(placed)) * 0.5 + 1),
        "total_grad_sq": 9 / t,
        "grad_sq": ones / t,
        "intended_update_sq": 4e-6 * ones,
        "adam_update_msq": ones,
    }
    values = {
        name: np.broadcast_to(np.atleast_2d(np.asarray(v, float).T).T, _shape(name, steps, placed))
        for name, v in {**flat, **rows}.items()
    }
    columns = [(name, site.name) for name in values for site in _sites(name, norms, parts)]
    layout = Layout(tuple(columns), (*norms, *parts))
    table = np.concatenate(list(values.values()), axis=1).astype(np.float32)
    return [Snapshot(first + i, 1e9 + i, row, layout) for i, row in enumerate(table)]


def _sites(statistic: str, norms: list[Site], parts: list[Site]) -> list[Site]:
    if statistic.startswith("norm"):
        return norms
    return parts if statistic in ("grad_sq", "intended_update_sq", "adam_update_msq") else [Site("")]


def _shape(statistic: str, steps: int, placed: Sequence[str]) -> tuple[int, int]:
    return steps, len(_sites(statistic, [Site(kind) for kind in placed], [Site(part) for part in PARTS]))


def only(alerts: Sequence[Alert], words: str) -> Alert:
    (alert,) = alerts
    assert words in alert.action
    return alert


def alerts(placed: Sequence[str] = PRE, steps: int = 30, **rows: ArrayLike) -> list[Alert]:
    return alerts_of(Wiring(), run(placed, steps, **rows))


PEAKS = {
    "Pre-LN, Xavier, 6 layers": (PRE, [1.0, 1.5, 2.2, 2.9, 3.7, 4.7, 5.2, 5.7, 6.4]),
    "Pre-LN, GPT-2": (PRE, [8e-4, 9e-4, 3e-3, 4e-3, 7e-3, 8e-3, 1.1e-2, 1.2e-2, 1.5e-2]),
    "Pre-LN, embedding of 2,000": (PRE, [2000, 2001, 2002, 2003, 2004, 2005, 2006, 2007, 2008]),
    "Post-LN": (POST, [0.03, 1.39, 1.44, 1.33, 1.58, 1.34, 1.53, 1.47]),
    "Post-LN, GPT-2": (POST, [0.001, 0.989, 0.999, 0.999, 0.999, 1.0, 1.0, 1.001]),
    "DeepNorm, 100 layers": (POST, [0.03, 14.5, 14.6, 14.5, 14.7, 14.5, 14.6, 14.5]),
    "Peri-LN": (("sandwich",) * 8 + ("final",), [1, 0.01, 2, 0.02, 3, 300, 4, 0.01, 5]),
    "ResNet": (("res_post",) * 8, [1, 0.1, 2, 0.2, 1, 0.1, 3, 0.1]),
    "no placement known": (("",) * 8, [100, 1, 100, 1, 100, 1, 100, 1]),
}


@pytest.mark.parametrize("name", PEAKS)
def test_families_at_their_initialisation_are_silent(name: str) -> None:
    placed, n = PEAKS[name]
    assert alerts(placed, norm_input_msq=[n] * 30) == []


def test_weights_four_times_too_large_are_named_at_step_12() -> None:
    alert = only(alerts(norm_input_msq=LARGE_START * 30), "initialised too large")
    assert (alert.step, alert.severity, alert.since, alert.site) == (12, "warning", 1, "norms.1")
    assert alert.evidence["added_msq"] == pytest.approx(201 - 0.44, rel=1e-3)
    post = [124, 86, 277, 99, 197, 92, 191, 61]
    assert only(alerts(POST, norm_input_msq=[post] * 30), "initialised too large").evidence["added_msq"] == 99


def test_a_shortcut_that_doubles_a_long_stream_is_silent() -> None:
    n = [1000, 1001, 2000, 2001, 4000, 4001, 8000, 8001, 8002]
    assert alerts(norm_input_msq=[n] * 30) == []


def test_a_stream_that_gets_shorter_has_no_residual_connection() -> None:
    """Measured: .03 .17 .29 .73 .32 .87 .45 1.28 .44, without the sum."""
    n = [0.03, 0.17, 0.29, 0.73, 0.32, 0.87, 0.45, 1.28, 0.44]
    alert = only(alerts(norm_input_msq=[n] * 30), "no working residual connection")
    assert (alert.severity, alert.site, alert.evidence["falls"]) == ("warning", "norms.4", 3)


def test_two_stacks_whose_streams_begin_anew_are_silent() -> None:
    n = [1, 2, 3, 4, 1, 2, 3, 4, 5]
    assert alerts(norm_input_msq=[n] * 30) == []


def post_with(gamma: float, n: ArrayLike) -> list[Alert]:
    """Norms that put out gamma^2."""
    n = np.array([n] * 30, float)
    return alerts(POST, norm_input_msq=n, norm_input_var=n, norm_gain=gamma / np.sqrt(n))


def test_in_post_ln_the_norms_own_scale_counts() -> None:
    small = [0.03, 0.34, 0.96, 0.42, 0.68, 0.4, 0.67, 0.24]
    assert "no working residual" in post_with(1.0, small)[0].action
    assert post_with(0.5, small) == []


def test_growth_after_the_first_step_is_not_the_initialisations() -> None:
    n = np.ones((30, 9)) * np.arange(1, 10)
    n[1:] = LARGE_START
    assert alerts(norm_input_msq=n) == []


def test_where_targets_are_not_known_the_initialisation_is_told_at_info() -> None:
    n = LARGE_START * 30
    assert alerts(norm_input_msq=n, unigram_loss=np.full(30, NAN))[0].severity == "info"


@pytest.mark.parametrize("gamma", [0.8, 1.5])
def test_norms_that_have_learnt_a_scale_are_a_pretrained_body_and_told_at_info(gamma: float) -> None:
    n = np.array(LARGE_START * 30)
    gammas = np.where(np.arange(9) == 4, gamma, 1.0)
    (alert,) = alerts(norm_input_msq=n, norm_input_var=n, norm_gain=gammas / np.sqrt(n))
    assert alert.severity == "info"


def test_a_missing_final_norm_is_an_info_and_a_norm_that_is_no_layer_may_be_it() -> None:
    rows = run(PRE[:-1])
    alert = only(alerts_of(Wiring(), rows), "no norm after the last one")
    assert (alert.severity, alert.site) == ("info", "norms.7")
    judge = Alarm(Wiring(), "run")
    judge.notice(Event(1, 0.0, ARCHITECTURE, {"not_seen": "layer_norm"}))
    assert [a for row in rows for a in judge.judge(row)] == []


def still(part: int, until: int = 30) -> Floats:
    values = np.full((30, len(PARTS)), 4e-6)
    values[:until, part] = 0
    return values


def test_a_block_that_is_not_stepped_is_warned_of_at_the_tenth_reading() -> None:
    alert = only(alerts(intended_update_sq=still(2)), "blocks.1 gets gradients and is never stepped")
    assert (alert.step, alert.since, alert.severity, alert.layer) == (10, 1, "warning", 1)


def test_it_is_judged_by_readings_not_by_steps() -> None:
    update = still(2)
    update[np.arange(30) % 3 > 0] = NAN
    assert alerts(intended_update_sq=update)[0].step == 28


def test_a_block_without_a_gradient_is_warned_of_and_a_head_without_one_is_an_info() -> None:
    gradients = np.ones((30, len(PARTS)))
    for value in (NAN, 0.0):
        gradients[:, 3] = value
        assert only(alerts(grad_sq=gradients), "blocks.2 gets no gradient").severity == "warning"
    gradients[:, 3], gradients[:, 6] = 1, NAN
    assert only(alerts(grad_sq=gradients), "head gets no gradient").severity == "info"


def test_a_part_that_has_moved_once_may_stand_still() -> None:
    """A stall: its steps vanish in rounding after a while."""
    update = np.full((30, len(PARTS)), 4e-6)
    update[3:, 1] = 0
    assert alerts(intended_update_sq=update) == []


def test_a_gradient_too_small_to_move_a_weight_is_no_missing_step() -> None:
    gradients = np.ones((30, len(PARTS)))
    gradients[:, 1] = 1e-14
    assert alerts(grad_sq=gradients, intended_update_sq=still(1)) == []


def test_a_gate_that_opens_at_the_second_step_is_silent() -> None:
    gradients = np.ones((30, len(PARTS)))
    gradients[0, 1:5] = 0
    assert alerts(grad_sq=gradients) == []


def test_a_part_that_begins_to_move_clears_the_alert() -> None:
    assert told(alerts(intended_update_sq=still(2, until=15))) == [(10, "warning"), (25, "cleared")]


def summed(fresh: Floats) -> dict[str, ArrayLike]:
    """Norms of running sums of gradients, float[step, part, coordinate]."""
    squares = np.cumsum(fresh, axis=0) ** 2
    return {"grad_sq": squares.sum(2), "total_grad_sq": squares.sum((1, 2))}


@pytest.mark.parametrize("drift", [0.0, 0.3, 1.0])
def test_kept_gradients_are_found_at_step_20_by_their_running_sum(drift: float) -> None:
    rng = np.random.default_rng(0)
    fresh = rng.normal(drift, 1, (30, len(PARTS), 50))
    alert = only(alerts(**summed(fresh)), "does not zero its gradients")
    assert (alert.step, alert.severity) == (20, "warning")


def test_gradients_that_grow_from_micro_batch_to_micro_batch_are_silent() -> None:
    """The optimizer takes every 16th step of what is called one; between its steps gradients add up."""
    rows = summed(np.random.default_rng(0).normal(0.3, 1, (30, len(PARTS), 50)))
    assert alerts(**rows, skipped_steps=(np.arange(1, 31) % 16 > 0).astype(float)) == []


def test_parts_whose_kept_gradients_grow_by_little_count_as_grown() -> None:
    """Measured: positions 1.01-fold and the first block 1.17-fold in 20 steps, the others 1.35- to 15-fold."""
    t = np.arange(1.0, 31)[:, None]
    norms = 1 + (t - 1) / 19 * (np.array([0.38, 0.01, 0.17, 0.35, 1.9, 13.7, 11.8]))
    alert = only(alerts(grad_sq=norms**2, total_grad_sq=(norms**2).sum(1)), "does not zero its gradients")
    assert (alert.step, alert.evidence["blocks_grown"]) == (20, 1.0)


def test_gradients_that_are_zeroed_are_silent_also_where_a_zero_head_makes_those_of_the_blocks_grow() -> None:
    rng = np.random.default_rng(0)
    fresh = rng.normal(0, 1, (30, len(PARTS), 50)) ** 2
    assert alerts(grad_sq=fresh.sum(2), total_grad_sq=fresh.sum((1, 2))) == []
    t = np.arange(1.0, 31)[:, None]
    growing = np.concatenate([np.broadcast_to(t**2, (30, 6)), 1 / t], axis=1)
    assert alerts(grad_sq=growing, total_grad_sq=growing.sum(1)) == []


def sizes(factor: Mapping[int, float] | Floats) -> list[Alert]:
    """Update norms of an Adam whose steps are multiplied so; the learning rate warms up meanwhile."""
    rate = np.minimum(np.arange(1, 31) / 10, 1) * 1e-3
    direction = np.random.default_rng(0).uniform(0.3, 1, (30, len(PARTS)))
    parts = np.array([10.0, 50, 50, 50, 50, 3, 20])
    whole = np.ones((30, len(PARTS))) * np.asarray(factor)
    update = whole * rate[:, None] * direction * parts
    return alerts(intended_update_sq=update**2, adam_update_msq=direction**2, learning_rate=rate)


@pytest.mark.parametrize("betas", [(0.9, 0.999), (0.9, 0.98), (0.9, 0.95), (0.95, 0.95), (0.8, 0.99)])
def test_an_adam_without_bias_correction_is_found_at_step_5(betas: tuple[float, float]) -> None:
    t = np.arange(1.0, 31)
    factor = (1 - betas[0] ** t) / np.sqrt(1 - betas[1] ** t)
    alert = only(sizes(factor[:, None]), "Adam without bias correction")
    assert alert.step == 5
    assert alert.evidence["step_growth"] == pytest.approx(factor[4] / factor[0], rel=1e-5)


def test_an_adam_with_it_is_silent_and_so_are_steps_that_grow_otherwise() -> None:
    t = np.arange(1.0, 31)[:, None]
    assert sizes(1 + 0 * t) == []
    assert sizes(t) == []
    other = t ** np.linspace(0.2, 0.6, len(PARTS))
    assert sizes(other) == []


def falling(to: float, at: int, steps: int = 400) -> Floats:
    return np.where(np.arange(steps) < at, 3.0, to)


def test_a_loss_under_half_the_bigram_loss_within_300_steps_looks_at_its_targets() -> None:
    """Median of nine: the fifth low one counts."""
    alert = only(alerts(steps=400, loss=falling(1.1, 200)), "looks at its targets")
    assert (alert.step, alert.severity) == (205, "warning")
    assert "the left neighbour is worth 0.68 nats" in alert.ruled_out[0]  # median of nine noisy ones


def noticing(ahead: float, rows: Sequence[Snapshot]) -> list[Alert]:
    judge = Alarm(Wiring(), "run")
    judge.notice(Event(1, 0.0, ARCHITECTURE, {"looks_ahead": ahead}))
    return [alert for row in rows for alert in judge.judge(row)]


def test_a_model_that_was_seen_to_look_ahead_is_told_at_step_12_whatever_its_loss() -> None:
    assert told(noticing(1.0, run())) == [(12, "warning")]
    assert only(noticing(1.0, run()), "sees the tokens that it is to predict").evidence == {"looks_ahead": 1.0}
    assert noticing(1.0, run(pretrained=np.ones(30))) == []
    assert noticing(0.0, run()) == []


def test_where_no_output_moved_a_low_loss_is_an_info_of_data_known_by_heart_that_names_nothing_ruled_out() -> None:
    """As of 80 characters, of which each step draws other pieces."""
    (alert,) = noticing(0.0, run(steps=400, loss=falling(1.1, 200)))
    assert (alert.step, alert.severity) == (205, "info")
    assert "most likely learnt its data by heart" in alert.action
    assert [reason.split(":")[0] for reason in alert.ruled_out[:2]] == [
        "a mask that is not causal",
        "targets that are not shifted",
    ]
    advice = " ".join([alert.action, *alert.remedies])
    assert not [word for word in ("mask", "causal", "shift") if word in advice]
    assert "another input holds the targets" in advice


def test_where_no_token_was_changed_a_low_loss_stays_a_warning_that_rules_out_no_mask() -> None:
    alert = only(alerts(steps=400, loss=falling(1.1, 200)), "check the attention mask")
    assert alert.severity == "warning"
    assert not [reason for reason in alert.ruled_out if "mask" in reason]


def test_in_masked_text_where_both_neighbours_are_seen_no_leak_is_looked_for() -> None:
    judge, rows = Alarm(Wiring(), "run"), run(steps=400, loss=falling(0.2, 100))
    judge.notice(Event(2, 0.0, NOT_SEEN, {"what": LEAK}))
    assert [alert for row in rows for alert in judge.judge(row)] == []
    unlike = Alarm(Wiring(), "run")
    unlike.notice(Event(2, 0.0, NOT_SEEN, {"what": "the output change of an update"}))
    assert len([alert for row in rows for alert in unlike.judge(row)]) == 1


@pytest.mark.parametrize("count", [1, 2, 4, 16])
def test_a_few_batches_that_come_again_and_again_are_learnt_by_heart_and_no_leak(count: int) -> None:
    """Their baselines recur, but for what the counts behind them still learn."""
    batches = NOISE[np.arange(400) % count] + (0.06 / np.arange(1, 401))[:, None]
    baselines = {"unigram_loss": 3.1 + batches[:, 0], "bigram_loss": 2.4 + batches.sum(axis=1)}
    assert alerts(steps=400, loss=falling(0.1, 200), **baselines) == []


@pytest.mark.parametrize("uniform", [5.5, 3.1], ids=["one batch", "the even guess"])
def test_one_batch_that_comes_again_from_some_step_on_is_learnt_by_heart_and_no_leak(uniform: float) -> None:
    """Live: from step 101 on, the loss was under the bigram loss by step 187, while the counts still learnt the batch.
    A unigram predictor that gave up is always at the even guess, and says nothing of batches."""
    at = np.arange(250)
    batch, t = NOISE[np.minimum(at, 100)], np.maximum(at - 100, 0)
    baselines: dict[str, Floats] = {
        "unigram_loss": 3.1 + (batch[:, 0] - 2e-3 * t if uniform > 3.1 else 0 * t),
        "bigram_loss": 2.4 + batch[:, 1] - 6e-3 * t,
        "uniform_loss": np.full(250, uniform),
    }
    found = alerts(steps=250, loss=falling(0.1, 180, 250), **baselines)
    assert [alert.step for alert in found] == ([] if uniform > 3.1 else [185])


def test_later_it_takes_a_loss_under_three_tenths() -> None:
    assert alerts(steps=400, loss=falling(1.1, 310)) == []
    assert only(alerts(steps=400, loss=falling(0.7, 310)), "looks at its targets").step == 315


def test_classes_and_copying_tasks_may_have_any_loss() -> None:
    assert alerts(steps=400, loss=falling(0.01, 50), bigram_loss=np.full(400, 3.1)) == []


@pytest.mark.parametrize("fault", ["init", "frozen", "leak"])
def test_a_pretrained_start_is_silent(fault: str) -> None:
    faults: dict[str, dict[str, ArrayLike]] = {
        "init": {"norm_input_msq": LARGE_START * 30},
        "frozen": {"intended_update_sq": still(2)},
        "leak": {"loss": np.full(30, 0.5)},
    }
    known = np.where(np.arange(30) >= 8, 1.0, 0.0)
    assert alerts(**faults[fault]) != []
    assert alerts(pretrained=known, **faults[fault]) == []


def test_a_warning_stays_past_step_1000_and_nothing_that_begins_later_is_told() -> None:
    assert told(alerts(steps=1020, norm_input_msq=LARGE_START * 1020)) == [(12, "warning")]
    assert told(alerts_of(Wiring(), run(PRE[:-1], steps=1020))) == [(12, "info"), (1010, "cleared")]
    late = run(steps=60, first=1001, intended_update_sq=np.where(np.arange(7) == 2, 0, 4e-6) * np.ones((60, 1)))
    assert alerts_of(Wiring(), late) == []


def test_a_part_that_begins_to_move_after_step_1000_clears_the_alert() -> None:
    update = np.full((1030, len(PARTS)), 4e-6)
    update[:1010, 2] = 0
    assert told(alerts(steps=1030, intended_update_sq=update)) == [(10, "warning"), (1020, "cleared")]


def test_the_worst_of_several_is_told_first() -> None:
    found = alerts(PRE[:-1], intended_update_sq=still(2))
    assert told(found) == [(10, "warning")]


@pytest.mark.parametrize("at", [5, 12, 25])
def test_the_alerts_are_the_same_after_a_stop(at: int) -> None:
    rows = run(intended_update_sq=still(2), norm_input_msq=LARGE_START * 30)
    whole, again = Alarm(Wiring(), "run"), Alarm(Wiring(), "run")
    expected = [whole.judge(row) for row in rows]
    for row in rows[:at]:
        again.judge(row)
    assert [again.judge(row) for row in rows[at:]] == expected[at:]
