"""Labels by outcome, on losses that are made up: what they are is known beforehand."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from stabmon.bench.detection.curves import Curve, moving
from stabmon.bench.detection.faults import LargerBatch, OddBatch, Rate
from stabmon.bench.detection.networks import Shape
from stabmon.bench.detection.outcomes import Known, Outcome, outcomes
from stabmon.bench.detection.scenarios import Scenario
from stabmon.bench.detection.shown import shown

Floats = NDArray[np.float64]
STEPS = 400
PLAIN = Scenario("plain", "healthy", Shape())
FAULT = Rate(200)


def noise(size: int = STEPS) -> Floats:
    return np.random.default_rng(0).normal(0, 0.03, size)


def learning(steps: int = STEPS) -> Floats:
    t = np.arange(1, steps + 1)
    return 1.5 + 4.3 * np.exp(-t / 15) + noise(steps)


def plateau(until: int = STEPS, level: float = 5.4) -> Floats:
    """Falls to the level, stays there, and leaves it at a step."""
    t = np.arange(1, STEPS + 1)
    left = np.where(t > until, (level - 1.6) * (1 - np.exp(-(t - until) / 20.0)), 0.0)
    return level + 0.6 * np.exp(-t / 5) - left + noise()


def jump(at: int, height: float, steps: int = STEPS, base: Floats | None = None) -> Floats:
    loss = learning() if base is None else base.copy()
    loss[at - 1 : at - 1 + steps] += height
    return loss


def curve(loss: Floats, unigram: float | Floats = 5.4, bigram: float = 1.4) -> Curve:
    steps = np.arange(1, len(loss) + 1)
    return Curve(steps, loss, np.broadcast_to(unigram, loss.shape), np.full(len(loss), bigram))


def label(loss: Floats, family: str = "healthy", control: Floats | None = None, **more: Any) -> Outcome:
    gap = {key: more.pop(key) for key in ("unigram", "bigram") if key in more}
    scenario = replace(PLAIN, name="run", family=family, control="control" if control is not None else "", **more)
    runs = [Known(scenario, 1, curve(loss, **gap))]
    if control is not None:
        runs.append(Known(replace(PLAIN, name="control"), 1, curve(control, **gap)))
    return outcomes(runs)["run-s1"]


@pytest.mark.parametrize(
    ("loss", "expected"),
    [
        (learning(), "HEALTHY"),
        (plateau(), "STALL"),
        (plateau(until=200), "DELAYED"),
        (plateau(until=40), "HEALTHY"),  # passes the unigram loss in less than 50 steps
        (plateau(until=396), None),  # on its way out at the end
        (jump(200, 1.0), "BLOW-UP"),
        (jump(370, 1.0), None),  # 31 steps are too few to tell
        (jump(200, 0.3), None),  # within .05 of the line
        (jump(200, 1.0, 30), "SPIKE"),
        (jump(200, 1.0, 150), None),  # came back, but after more than 100 steps
        (jump(3, 2.0, 10), "HEALTHY"),  # untrained
        (jump(3, 9.0), "BLOW-UP"),
        (jump(200, np.nan), "BLOW-UP"),
        (jump(200, 3.9), "BLOW-UP"),
        (learning() + 5, None),  # has not come down to the unigram loss
    ],
)
def test_a_run_is_what_its_loss_did(loss: Floats, expected: str | None) -> None:
    assert label(loss).label == expected


@pytest.mark.parametrize("family", ["stall", "delayed", "healthy", "floor", "spike", "blow_up"])
@pytest.mark.parametrize(
    ("loss", "expected"), [(plateau(), "STALL"), (plateau(until=200), "DELAYED"), (jump(200, 1.0), "BLOW-UP")]
)
def test_what_it_was_meant_to_be_does_not_matter(family: str, loss: Floats, expected: str) -> None:
    assert label(loss, family).label == expected


def test_where_a_bigram_gains_nothing_a_plateau_is_the_floor_unless_others_learn_there() -> None:
    assert label(plateau(), bigram=5.4).label == "FLOOR"
    assert label(plateau(), bigram=5.3).label is None  # a gap of .1 is on the line
    assert label(plateau(), bigram=5.4, control=learning()).label == "STALL"
    assert label(plateau(), bigram=float("nan")).label == "FLOOR"


def test_a_plateau_that_no_n_gram_explains_is_abrupt_where_it_is_left() -> None:
    assert label(plateau(until=200), "abrupt", bigram=5.4).label == "ABRUPT"
    assert label(plateau(), "abrupt", bigram=5.4).label is None
    assert label(plateau(), "abrupt", bigram=5.4, control=plateau(until=200)).label == "ABRUPT"
    assert label(plateau(until=200), "abrupt").label == "DELAYED"


@pytest.mark.parametrize("seed", range(5))
def test_the_onset_is_where_the_moving_average_crosses_its_line(seed: int) -> None:
    rng = np.random.default_rng(seed)
    loss = learning() + np.where(np.arange(STEPS) >= 250, np.arange(STEPS) - 249, 0) * rng.uniform(0.005, 0.1)
    average, lowest, crossed = loss[0], loss[0], 0
    for step, value in enumerate(loss, 1):
        average += 0.1 * (value - average) if step > 1 else 0
        lowest = min(lowest, average)
        crossed = 0 if average <= lowest + 0.3 else crossed or step
    assert label(loss).onset == crossed > 250


def test_the_onset_of_a_stall_is_where_it_stays_within_015_of_the_unigram_loss() -> None:
    loss = plateau()
    average = moving(loss - 5.4)
    first = int(np.flatnonzero(np.abs(average) > 0.15)[-1]) + 2
    assert label(loss).onset == first
    assert 5 < first < 30


def test_a_spike_that_was_injected_begins_with_the_injection_another_where_the_loss_rose() -> None:
    assert label(jump(200, 1.0, 30), "spike", fault=FAULT).onset == 200
    found = label(jump(200, 1.0, 30))
    assert found.onset is not None
    assert 200 < found.onset < 210
    assert found.begins == 1


def test_a_fault_whose_loss_stays_with_its_control_did_no_harm() -> None:
    for family in ("spike", "blow_up", "attention", "implementation"):
        assert label(learning(), family, control=learning() + 0.1, fault=FAULT).label == "HARMLESS"
    assert label(learning() + 0.9, "spike", control=learning(), fault=FAULT).label is None  # worse, but it never rose


def test_attention_and_implementation_are_measured_against_the_same_run_without_the_fault() -> None:
    worse = learning() + 0.25 * (np.arange(STEPS) > 220) + 0.25 * (np.arange(STEPS) > 350)
    slower = learning() + 0.5
    assert label(slower, "attention", control=learning(), fault=FAULT).label == "ATTENTION"
    assert label(slower, "implementation", control=learning()).label == "IMPLEMENTATION"
    assert label(learning() - 0.9, "implementation", control=learning()).label == "IMPLEMENTATION"  # a leak
    assert label(learning() - 0.9, "attention", control=learning(), fault=FAULT).label == "HARMLESS"
    found = label(worse, "attention", control=learning(), fault=FAULT)
    assert (found.label, found.begins) == ("ATTENTION", 200)
    assert label(learning() + 0.3, "attention", control=learning(), fault=FAULT).label is None
    assert label(learning(), "implementation").label is None  # without a control nobody knows


def test_a_data_fault_keeps_its_name_and_tells_what_else_is_true() -> None:
    found = label(jump(200, 3.9), "data", fault=FAULT)
    assert (found.label, found.begins, found.onset, found.also) == ("DATA", 200, 200, ("BLOW-UP", "STALL"))
    assert label(learning(), "data", fault=FAULT).label == "DATA"


def test_a_known_change_is_a_schedule_as_long_as_nothing_goes_wrong() -> None:
    assert label(learning(), "schedule", fault=LargerBatch(150)).label == "SCHEDULE"
    assert label(jump(200, 1.0), "schedule", drop_at=200).label == "BLOW-UP"


def test_what_makes_a_batch_hard_for_a_unigram_too_is_no_rise() -> None:
    hard = np.where(np.arange(STEPS) % 100 < 20, 0.45, 0.0)
    seen = learning() + hard
    assert label(seen).label != "HEALTHY"
    assert label(seen, unigram=5.4 + hard).label == "HEALTHY"
    lost = jump(200, 6.0, 1)
    assert (
        shown(curve(lost, unigram=jump(200, 6.0, 1, np.full(STEPS, 5.4)))).what == "SPIKE"
    )  # at most 1 nat is excused


def test_one_odd_batch_that_the_run_gets_over_is_no_spike() -> None:
    assert label(jump(200, 2.0, 30), "spike", fault=OddBatch(200)).label == "HARMLESS"
    assert label(jump(200, 2.0, 30), "spike", fault=FAULT).label == "SPIKE"
