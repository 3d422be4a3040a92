"""Copies that differ, ranks that are not read, a rank whose data is different; and what looks like it and is none."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import ArrayLike

from stabmon.detectors.arrays import Floats
from stabmon.detectors.rank_trouble import RankTrouble
from stabmon.records import Snapshot
from tests.detectors.series import alerts_of, make_series, told

STEPS, BLOCKS, NAN = 60, 3, float("nan")


def run(every: int = 1, first: int = 1, **rows: ArrayLike) -> list[Snapshot]:
    """Two ranks in order for 60 readings, but for what is given."""
    rng = np.random.default_rng(0)
    flat: dict[str, ArrayLike] = {
        "ranks_read": np.full(STEPS, 2.0),
        "ranks_lost": np.zeros(STEPS),
        "rank_loss_spread": rng.uniform(0.01, 0.3, STEPS),
        "rank_loss_highest": rng.integers(0, 2, STEPS),
        "rank_weight_spread": np.zeros((STEPS, BLOCKS)),
        "rank_grad_spread": np.zeros((STEPS, BLOCKS)),
    }
    return make_series({**flat, **rows}, first=first, every=every)


def apart(start: int, spread: float, block: int = 1) -> Floats:
    """[STEPS, BLOCKS]: one block differs from that reading (from 1) on."""
    values = np.zeros((STEPS, BLOCKS))
    values[start - 1 :, block] = spread
    return values


def test_ranks_that_agree_are_silent() -> None:
    assert alerts_of(RankTrouble(), run()) == []


@pytest.mark.parametrize("spread", [2e-6, 0.1, np.inf])
def test_copies_that_were_equal_and_differ_are_critical_at_the_second_reading(spread: float) -> None:
    (alert,) = alerts_of(RankTrouble(), run(rank_weight_spread=apart(20, spread)))
    assert (alert.step, alert.since, alert.severity) == (21, 20, "critical")
    assert (alert.layer, alert.site) == (1, "layers.1")
    assert alert.evidence["blocks_apart"] == 1


def test_the_last_bits_of_unlike_gpus_are_no_difference() -> None:
    noise = np.random.default_rng(1).uniform(0, 5e-7, (STEPS, BLOCKS))
    assert alerts_of(RankTrouble(), run(rank_weight_spread=noise, rank_grad_spread=noise)) == []


def test_gradients_tell_a_missing_all_reduce_from_weights_of_another_origin() -> None:
    weights = apart(20, 1e-3)
    (missing,) = alerts_of(
        RankTrouble(), run(rank_weight_spread=weights, rank_grad_spread=np.full((STEPS, BLOCKS), 0.2))
    )
    (origin,) = alerts_of(RankTrouble(), run(rank_weight_spread=weights))
    assert "not averaged" in missing.cause
    assert "this block was equal before" in missing.ruled_out[0]
    assert "no_sync()" in " ".join(missing.remedies)
    assert "from other weights" in origin.cause
    assert "a missing all-reduce: gradients are equal (rank_grad_spread 0)" in origin.ruled_out
    assert "checkpoint" in origin.remedies[0]


def test_different_weights_with_equal_gradients_are_critical_from_the_start() -> None:
    (alert,) = alerts_of(RankTrouble(), run(rank_weight_spread=apart(1, 0.05)))
    assert told([alert]) == [(2, "critical")]


def test_tensors_cut_over_the_ranks_by_hand_are_silent() -> None:
    """Two blocks hold parts, one, the final norm, is whole on each rank."""
    parts = apart(1, 0.05, block=0) + apart(1, 0.02, block=1)
    assert alerts_of(RankTrouble(), run(rank_weight_spread=parts, rank_grad_spread=10 * parts)) == []


def test_a_model_cut_over_the_ranks_in_all_blocks_has_one_loss_and_is_silent() -> None:
    every = np.full((STEPS, BLOCKS), 0.05)
    rows = {"rank_weight_spread": every, "rank_grad_spread": every, "rank_loss_spread": np.zeros(STEPS)}
    assert alerts_of(RankTrouble(), run(**rows)) == []


def test_ranks_that_have_nothing_in_common_are_warned_of() -> None:
    """Other seeds and no averaging: no block was ever equal, and neither are gradients and losses."""
    every = np.full((STEPS, BLOCKS), 0.05)
    alerts = alerts_of(RankTrouble(), run(rank_weight_spread=every, rank_grad_spread=every))
    assert told(alerts) == [(2, "warning")]
    assert "averages nothing" in alerts[0].action


def test_gradients_that_differ_while_weights_are_equal_are_silent() -> None:
    """The loop averages them itself, between backward and step: stabmon reads them before."""
    assert alerts_of(RankTrouble(), run(rank_grad_spread=np.full((STEPS, BLOCKS), 0.3))) == []


def test_one_odd_reading_is_silent() -> None:
    once = apart(20, 0.1)
    once[20:] = 0
    assert alerts_of(RankTrouble(), run(rank_weight_spread=once)) == []


def test_copies_that_are_equal_again_clear_the_alert() -> None:
    while_ = apart(20, 0.1)
    while_[29:] = 0
    assert told(alerts_of(RankTrouble(), run(rank_weight_spread=while_))) == [(21, "critical"), (39, "cleared")]


def test_a_rank_that_is_not_read_is_warned_of_and_counted() -> None:
    lost = np.where(np.arange(STEPS) >= 30, 1.0, 0.0)
    (alert,) = alerts_of(RankTrouble(), run(every=10, first=10, ranks_lost=lost, ranks_read=2 - lost))
    assert (alert.step, alert.since, alert.severity) == (320, 310, "warning")
    assert "on 1 of 2 ranks" in alert.action


def test_a_part_that_failed_everywhere_is_no_rank_that_is_lost() -> None:
    assert alerts_of(RankTrouble(), run(ranks_lost=np.full(STEPS, 2.0), ranks_read=np.zeros(STEPS))) == []


def same_rank(spread: float) -> dict[str, Floats]:
    return {"rank_loss_spread": np.full(STEPS, spread), "rank_loss_highest": np.ones(STEPS)}


@pytest.mark.parametrize(("spread", "severity"), [(0.2, "info"), (0.6, "warning")])
def test_a_rank_whose_loss_is_the_highest_30_times_in_a_row_is_named(spread: float, severity: str) -> None:
    (alert,) = alerts_of(RankTrouble(), run(**same_rank(spread)))
    assert (alert.step, alert.since, alert.severity) == (30, 1, severity)
    assert "on rank 1" in alert.action
    assert "those of all ranks are equal" in alert.ruled_out[0]


def test_losses_less_than_a_tenth_apart_and_ranks_that_take_turns_are_silent() -> None:
    assert alerts_of(RankTrouble(), run(**same_rank(0.09))) == []
    turns = {"rank_loss_spread": np.full(STEPS, 0.5), "rank_loss_highest": np.arange(STEPS) // 20 % 2}
    assert alerts_of(RankTrouble(), run(**turns)) == []


def test_steps_between_samples_change_nothing() -> None:
    rows = run(rank_weight_spread=apart(20, 0.1))
    between = [Snapshot(s.step, s.time, np.full_like(s.values, NAN), s.layout) for s in rows]
    mixed = [s for pair in zip(rows, between, strict=True) for s in pair]
    assert told(alerts_of(RankTrouble(), mixed)) == [(21, "critical")]


def test_sharded_models_have_no_copies_and_the_rest_is_judged() -> None:
    rows = {k: np.full(STEPS, v) for k, v in (("ranks_read", 3.0), ("ranks_lost", 1.0))}
    assert told(alerts_of(RankTrouble(), make_series(rows))) == [(2, "warning")]


@pytest.mark.parametrize("at", [35, 40, 41, 55])
def test_after_a_stop_the_last_readings_are_memory_enough(at: int) -> None:
    """A fresh one is shown the twenty readings before the stop again."""
    rows = run(rank_weight_spread=apart(40, 0.1))
    whole, again = RankTrouble(), RankTrouble()
    scores = [whole.score(snapshot).tolist() for snapshot in rows]
    for snapshot in rows[at - 20 : at]:
        again.score(snapshot)
    if at >= 41:
        assert again.explain(0).since == 40
    assert [again.score(snapshot) >= 1 for snapshot in rows[at:]] == [score[0] >= 1 for score in scores[at:]]
