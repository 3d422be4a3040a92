"""Two ranks that disagree, or of which one fails: nobody waits for ever, and no number is wrong."""

from __future__ import annotations

import math
from typing import Any

import pytest

from stabmon.bench.ranks.processes import on_ranks
from tests.distributed.scenes import all_scenes
from tests.trainings import STEPS

Scenes = list[dict[str, dict[str, Any]]]
"""Of each rank, by the scene's name."""


@pytest.fixture(scope="module")
def scenes(tmp_path_factory: pytest.TempPathFactory) -> Scenes:
    return on_ranks(2, tmp_path_factory.mktemp("scenes") / "ranks", all_scenes)


def values(scenes: Scenes, scene: str, statistic: str, site: int = 0) -> list[float]:
    """Of rank 0, at that site, step by step."""
    return [row[statistic][site] for row in scenes[0][scene]["values"]]


def alerts(scenes: Scenes, scene: str) -> list[tuple[str, int, str, str]]:
    """Of ranks: (severity, step, site, cause)."""
    found = [alert for alert in scenes[0][scene]["alerts"] if alert.detector == "rank_trouble"]
    return [(alert.severity, alert.step, alert.site, alert.cause) for alert in found]


def read(found: list[float]) -> list[bool]:
    return [not math.isnan(value) for value in found]


def said(scenes: Scenes, rank: int, scene: str, words: str) -> bool:
    return any(words in line for line in scenes[rank][scene]["said"])


def test_a_tap_that_fails_on_one_rank_leaves_the_others_values_and_is_told(scenes: Scenes) -> None:
    assert read(values(scenes, "a_tap_fails", "norm_gain")) == [True] * STEPS
    failures = [detail for kind, detail in scenes[0]["a_tap_fails"]["events"] if kind == "part_failed"]
    assert failures == [{"part": "norms", "error": "on another rank"}]
    assert said(scenes, 1, "a_tap_fails", "norms failed at step 3 and is dropped")


def test_copies_under_ddp_are_equal_bit_for_bit_while_a_rank_of_which_not_all_is_read_is_counted(
    scenes: Scenes,
) -> None:
    for statistic in ("rank_weight_spread", "rank_grad_spread"):
        spreads = [row[statistic] for row in scenes[0]["a_tap_fails"]["values"]]
        assert spreads == [[0.0] * len(spreads[0])] * STEPS
    assert values(scenes, "a_tap_fails", "ranks_lost") == [0, 0, 1, 1, 1]
    assert values(scenes, "a_tap_fails", "ranks_read") == [2, 2, 1, 1, 1]
    assert [found[:2] for found in alerts(scenes, "a_tap_fails")] == [("warning", 4)]


def test_a_weight_that_changes_on_one_rank_is_critical_two_readings_later(scenes: Scenes) -> None:
    spread = values(scenes, "a_weight_changes", "rank_weight_spread", site=-1)
    assert spread[:2] == [0, 0]
    assert all(1e-6 < later < 0.1 for later in spread[2:])
    assert values(scenes, "a_weight_changes", "rank_grad_spread", site=-1) == [0] * STEPS
    ((severity, step, site, cause),) = alerts(scenes, "a_weight_changes")
    assert (severity, step, site) == ("critical", 4, "head")
    assert cause.startswith("Gradients are averaged")


def test_ranks_that_average_no_gradients_are_critical_at_step_3(scenes: Scenes) -> None:
    assert values(scenes, "nothing_is_averaged", "rank_weight_spread")[0] == 0
    assert min(values(scenes, "nothing_is_averaged", "rank_grad_spread")) > 1e-3
    ((severity, step, _, cause),) = alerts(scenes, "nothing_is_averaged")
    assert (severity, step) == ("critical", 3)
    assert "not averaged" in cause


def test_a_sharded_model_has_no_copies_to_compare(scenes: Scenes) -> None:
    assert [row["rank_weight_spread"] for row in scenes[0]["a_part_is_lost"]["values"]] == [[]] * STEPS


def test_sums_of_sharded_gradients_end_when_a_rank_has_lost_its_part(scenes: Scenes) -> None:
    assert read(values(scenes, "a_part_is_lost", "grad_sq")) == [True, True, False, False, False]
    assert read(values(scenes, "a_part_is_lost", "norm_gain")) == [True] * STEPS


@pytest.mark.parametrize("scene", ["a_monitor_fails", "a_monitor_fails_at_once"])
def test_a_monitor_that_fails_on_one_rank_keeps_no_other_waiting(scenes: Scenes, scene: str) -> None:
    assert read(values(scenes, scene, "norm_gain")) == [True] * STEPS
    failed = {detail["part"] for kind, detail in scenes[0][scene]["events"] if kind == "part_failed"}
    assert {"norms", "gradients", "loss"} <= failed


def test_rank_0_decides_whether_stabmon_is_disabled(scenes: Scenes) -> None:
    assert values(scenes, "one_is_disabled", "loss") == pytest.approx(values(scenes, "a_tap_fails", "loss"), rel=1e-6)
    assert said(scenes, 1, "one_is_disabled", "disabled is not the same on rank 1 and on rank 0; rank 0's is taken")


def test_the_schedule_is_that_of_rank_0(scenes: Scenes) -> None:
    assert read(values(scenes, "settings_differ", "norm_gain")) == [False, True, False, True, False]
    assert said(scenes, 1, "settings_differ", "every is not the same on rank 1 and on rank 0; rank 0's is taken")


def test_a_rank_without_on_alert_listens_to_one_that_has_it(scenes: Scenes) -> None:
    assert (scenes[0]["one_reacts"]["told"], scenes[1]["one_reacts"]["told"]) == (1, 0)


def test_without_a_monitor_on_every_rank_rank_0_watches_alone_and_says_so(scenes: Scenes) -> None:
    assert read(values(scenes, "one_has_no_monitor", "norm_gain")) == [True] * STEPS
    assert said(scenes, 0, "one_has_no_monitor", "waiting for the Monitor of rank 1")
    assert said(scenes, 0, "one_has_no_monitor", "so rank 0 watches alone")


def test_ranks_that_run_out_of_data_under_join_are_not_added_up(scenes: Scenes) -> None:
    assert scenes[0]["uneven"]["steps"] == STEPS
    assert read(scenes[0]["uneven"]["loss"]) == [True] * STEPS


@pytest.mark.parametrize("mode", ["ddp", "fsdp2"])
def test_dropout_and_accumulation_end_bit_for_bit_as_without_stabmon(scenes: Scenes, mode: str) -> None:
    assert [rank["identity"][mode] for rank in scenes] == [True, True]


def test_fsdp1_shows_norms_and_losses_and_no_gradients(scenes: Scenes) -> None:
    assert read(values(scenes, "fsdp1", "norm_gain")) == read(values(scenes, "fsdp1", "loss")) == [True] * STEPS
    assert read(values(scenes, "fsdp1", "grad_sq")) == [False] * STEPS
    assert said(scenes, 0, "fsdp1", "FSDP1 keeps parameters in flat buffers, so gradients, updates and the output")
