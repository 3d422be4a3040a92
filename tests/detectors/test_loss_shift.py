"""Other data, an update that was too large, one batch again and again: told apart where the loss alone cannot."""

from collections.abc import Sequence

import numpy as np
import pytest

from stabmon.detectors.alarm import Alarm
from stabmon.detectors.arrays import Floats
from stabmon.detectors.loss_shift import LossShift
from stabmon.detectors.thresholds import shift as thresholds
from stabmon.records import BATCH_SIZE, RESUME, Alert, Event
from tests.detectors.losses import learning
from tests.detectors.series import alerts_of, make_series, told

COUNT, AT = 400, 250
"""`AT`: index of the first step (251) that is touched."""
AFTER = slice(AT, None)


def run(seed: int = 0) -> dict[str, Floats]:
    """A small language model on text: batches of 256 tokens, its probe every 50 steps."""
    rng = np.random.default_rng(seed)
    batch = rng.normal(0, 0.1, COUNT)
    every = np.where(np.arange(1, COUNT + 1) % 50 == 0, 1.0, np.nan)
    return {
        "loss": learning(COUNT, 0.0, first=5.6, last=1.5) + 0.5 * batch + rng.normal(0, 0.03, COUNT),
        "uniform_loss": np.full(COUNT, 5.545),
        "unigram_loss": 3.1 + batch,
        "bigram_loss": 2.4 + 0.8 * batch + 2 / np.arange(1, COUNT + 1),
        "output_change_kl": every * 8e-3,
        "update_sq": np.exp(rng.normal(0, 0.1, COUNT)),
    }


def alerts(rows: dict[str, Floats]) -> list[Alert]:
    return alerts_of(LossShift(), make_series(rows))


def said(rows: dict[str, Floats]) -> Sequence[tuple[int, str]]:
    return told(alerts(rows))


def test_shuffled_labels_are_a_data_fault_at_the_second_step_and_critical_at_the_eighth() -> None:
    """What follows what is lost (bigram), how common each token is stays (unigram)."""
    rows = run()
    rows["loss"][AFTER] += 3.0
    rows["bigram_loss"][AFTER] += 2.0
    first, second = alerts(rows)
    assert [(a.step, a.severity) for a in (first, second)] == [(252, "warning"), (258, "critical")]
    assert first.since == 251
    assert first.evidence["data_fault"] == 1.0
    assert first.evidence["bigram_loss_before"] == pytest.approx(2.4, abs=0.05)
    assert first.ruled_out == ("updates that are too large (KL 0.008 at step 250)",)


def test_targets_that_no_longer_follow_their_inputs_have_no_bigram_loss_and_are_told_though_noise_hides_the_rise() -> (
    None
):
    """As recorded: text, batches of 256 tokens, the loss goes from 2.7 to 3.5 for five steps and then to the unigram
    loss; single losses have a spread of .25."""
    rows = run()
    rows["bigram_loss"][AFTER] = np.nan
    noise = 2.5 * (rows["unigram_loss"] - 3.1)
    rows["unigram_loss"] = 3.1 + noise
    rows["loss"] = 2.7 + noise + np.random.default_rng(1).normal(0, 0.05, COUNT)
    rows["loss"][AFTER] += 0.4 + 0.5 * np.exp(-np.arange(COUNT - AT) / 3)
    first, second = alerts(rows)
    assert [(a.step, a.severity) for a in (first, second)] == [(252, "warning"), (258, "critical")]
    assert "no longer follow" in first.cause


def test_a_loss_of_five_times_its_level_is_critical_at_once() -> None:
    rows = run()
    rows["loss"][AFTER] += 8.0
    rows["bigram_loss"][AFTER] += 2.0
    assert said(rows) == [(252, "critical")]


def test_another_tokenizer_moves_both_baselines() -> None:
    rows = run()
    for name in ("loss", "unigram_loss", "bigram_loss"):
        rows[name][AFTER] += 3.0
    assert [severity for _, severity in said(rows)] == ["warning", "critical"]


def test_inputs_that_go_wrong_are_told_by_ordinary_updates_and_a_loss_above_the_unigram_loss() -> None:
    rows = run()
    rows["loss"][AFTER] += 3.0
    first, second = alerts(rows)
    assert [(a.step, a.severity) for a in (first, second)] == [(252, "warning"), (258, "critical")]
    assert first.evidence["data_fault"] == 1.0
    assert first.cause.endswith("the weights are what they were.")  # the update of step 250 was read


def test_where_the_targets_do_not_show_it_the_loss_itself_may_have_been_changed() -> None:
    """Live: label smoothing that sets in at a step was called other data."""
    rows = run()
    rows["loss"][AFTER] += 3.0
    first, second = alerts(rows)
    assert first.action.startswith("has other data or another loss since step 251: ")
    assert second.action.endswith("; if it is the data, every further step unlearns")
    changed = "a term, a weight, label smoothing"
    assert changed in first.cause
    assert any(changed in remedy for remedy in first.remedies)
    rows["bigram_loss"][AFTER] += 2.0
    first, second = alerts(rows)
    assert first.action.startswith("has other data since step 251: ")
    assert second.action.endswith("; every further step unlearns")
    assert changed not in " ".join([first.cause, *first.remedies])


def test_an_update_between_two_readings_is_not_ruled_out() -> None:
    rows = run()
    rows["loss"][AFTER.start + 6 :] += 3.0
    first = alerts(rows)[0]
    assert (first.step, first.since) == (258, 257)
    assert first.cause.endswith("or one update that was not read was too large.")


@pytest.mark.parametrize("factor", [30, 100])
def test_a_learning_rate_that_jumps_is_no_other_data_though_the_last_update_that_was_read_was_ordinary(
    factor: float,
) -> None:
    """Live: x30 and x100 at step 206 of a byte model, updates read at 200; it was told to keep the learning rate."""
    rows = run()
    rows["learning_rate"] = np.where(np.arange(COUNT) < AT + 5, 1e-3, 1e-3 * factor)
    rows["loss"][AFTER.start + 6 :] += 3.0
    assert said(rows) == []
    rows["learning_rate"][:] = 1e-3
    assert said(rows)[0] == (258, "warning")


def test_once_a_data_fault_is_over_a_hard_batch_is_weighed_by_its_unigram_loss_again() -> None:
    rows = run()
    rows["unigram_loss"][AT : AT + 20] += 3.0
    rows["loss"][AT : AT + 20] += 3.0
    rows["loss"][340:344] += 1.5
    rows["unigram_loss"][340:344] += 1.5
    assert [(step, severity) for step, severity in said(rows) if step > 330] == []


def test_other_text_that_the_model_still_knows_something_of_is_a_warning_at_most() -> None:
    rows = run()
    rows["loss"][AFTER] += 0.8
    rows["unigram_loss"][AFTER] += 0.8
    assert "critical" not in dict(said(rows)).values()
    assert said(rows)[0] == (252, "warning")


@pytest.mark.parametrize(
    "odd",
    [
        {"output_change_kl": 1.8},
        {"update_sq": 900.0},
    ],
    ids=lambda odd: next(iter(odd)),
)
def test_the_same_rise_after_an_odd_update_is_no_data_fault_and_told_when_it_has_lasted_12_points(
    odd: dict[str, float],
) -> None:
    rows = run()
    rows["loss"][AFTER] += 3.0
    for name, value in odd.items():
        rows[name][AT - 1] = value
    first, *_ = alerts(rows)
    assert (first.step, first.severity, first.evidence["data_fault"]) == (262, "warning", 0.0)
    assert first.ruled_out == ("other data (unigram loss 3.05, as before)",)


def test_a_rise_that_is_over_within_12_points_is_left_to_spike() -> None:
    rows = run()
    rows["loss"][AT : AT + 10] += 1.0
    assert said(rows) == []


@pytest.mark.parametrize("sick", [1, 0])
def test_one_odd_batch_is_silent_even_if_the_loss_needs_nine_steps_to_recover(sick: int) -> None:
    rows = run()
    rows["loss"][AT] += 8.0
    rows["loss"][AT : AT + 9] += 0.4 * sick
    for name in ("unigram_loss", "bigram_loss"):
        rows[name][AT] += 3.0
    assert said(rows) == []


def test_a_data_fault_stays_open_until_the_loss_is_back() -> None:
    rows = run()
    rows["loss"][AT : AT + 100] += 3.0
    rows["bigram_loss"][AT : AT + 100] += 2.0
    assert [what for _, what in said(rows)] == ["warning", "critical", "cleared"]
    assert said(rows)[-1][0] == 361


def test_one_batch_again_and_again_is_told_after_8_repeats_and_critical_after_24() -> None:
    rows = run()
    t = np.arange(COUNT - AT)
    rows["unigram_loss"][AFTER] = 3.15 - 5e-4 * t
    rows["loss"][AFTER] = 1.7 * np.exp(-t / 30)
    first, second = alerts(rows)
    assert [(a.step, a.severity, a.since) for a in (first, second)] == [(259, "warning", 252), (275, "critical", 252)]
    assert first.evidence["data_fault"] == 1.0


def test_a_unigram_predictor_that_gave_up_is_no_repeated_batch() -> None:
    """As recorded: every token as common as any other, so that it falls back on the even guess."""
    rows = run()
    rows["uniform_loss"] = rows["unigram_loss"].copy()
    rows["unigram_loss"][AFTER] = rows["uniform_loss"][AFTER] = 3.1
    assert said(rows) == []


def test_batches_of_the_commoner_class_alone_are_no_repeated_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two classes the rarer is in 40 % of the batches of 64: eight in a row without it come by chance."""
    rng = np.random.default_rng(0)
    rare = np.where(rng.random(COUNT) < 0.4, 1 + rng.poisson(0.3, COUNT), 0)
    unigram = 0.05 + 0.07 * rare + 0.03 / np.arange(1, COUNT + 1)
    rows = {**run(), "uniform_loss": np.full(COUNT, 0.693), "unigram_loss": unigram, "loss": unigram - 0.02}
    rows["bigram_loss"] = np.full(COUNT, np.nan)
    assert said(rows) == []
    monkeypatch.setattr(thresholds, "SAME_USUAL", 1.0)
    assert "warning" in [what for _, what in said(rows)]


def test_a_data_fault_is_told_of_rather_than_a_batch_that_is_repeated_after_it() -> None:
    rows = run()
    rows["loss"][AFTER] += 3.0
    rows["bigram_loss"][AFTER] += 2.0
    rows["unigram_loss"][AFTER] = 3.1
    assert said(rows) == [(252, "warning"), (258, "critical")]


def test_a_training_on_one_batch_from_the_start_is_silent() -> None:
    rows = run()
    rows["unigram_loss"] = 3.15 + 1 / np.arange(1, COUNT + 1)
    assert said(rows) == []


@pytest.mark.parametrize("seed", range(5))
def test_a_healthy_run_is_silent(seed: int) -> None:
    assert said(run(seed)) == []


def test_another_batch_size_explains_a_rise() -> None:
    rows = run()
    rows["loss"][AFTER] += 3.0
    alarm, found = Alarm(LossShift(), "run"), []
    for snapshot in make_series(rows):
        if snapshot.step == AT + 1:
            alarm.notice(Event(AT + 1, 0.0, BATCH_SIZE, {}))
        found += alarm.judge(snapshot)
    assert found == []


def test_without_baselines_it_is_silent() -> None:
    rows = run()
    rows["loss"][AFTER] += 3.0
    unread = {**rows, "unigram_loss": np.full(COUNT, np.nan), "bigram_loss": np.full(COUNT, np.nan)}
    assert said(unread) == []
    assert said({name: rows[name] for name in ("loss", "update_sq")}) == []


def test_readings_that_are_missing_in_between_change_nothing() -> None:
    rows = run()
    rows["loss"][AFTER] += 3.0
    rows["bigram_loss"][AFTER] += 2.0
    holes = {name: np.insert(values, [100, 200, 251], np.nan) for name, values in rows.items()}
    assert [(step - 3, what) for step, what in said(holes)] == said(rows)


def test_a_constant_added_to_all_losses_changes_nothing() -> None:
    rows = run()
    rows["loss"][AFTER] += 3.0
    rows["bigram_loss"][AFTER] += 2.0
    shifted = {name: values + 1 * name.endswith("loss") for name, values in rows.items()}
    assert said(shifted) == said(rows)


@pytest.mark.parametrize(("level", "anew"), [(5.6, True), (7.0, False)])
def test_a_resume_at_the_loss_of_the_first_step_is_one_without_its_checkpoint(level: float, anew: bool) -> None:
    """At another loss it is the data, as without a resume."""
    rows = run()
    rows["loss"][AFTER] = level + 0.05 * np.random.default_rng(3).normal(0, 1, COUNT - AT)
    if not anew:
        rows["bigram_loss"][AFTER] += 2.0
    alarm, found = Alarm(LossShift(), "run"), []
    for snapshot in make_series(rows):
        if snapshot.step == AT + 1:
            alarm.notice(Event(AT + 1, 0.0, RESUME, {"at": AT + 1}))
        found += alarm.judge(snapshot)
    assert [(a.step, a.severity) for a in found] == [(252, "warning"), (258, "critical")]
    assert all(("resumed without" in a.action) is anew for a in found)
    assert all((a.evidence["data_fault"] == 0.0) is anew for a in found)
