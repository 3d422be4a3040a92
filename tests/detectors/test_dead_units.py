"""A rise of dead or saturated units to half of a layer is told; few tokens, alike ones and sparse layers are silent."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import ArrayLike

from stabmon.detectors.alarm import Alarm
from stabmon.detectors.arrays import Floats
from stabmon.detectors.dead_units import DeadUnits
from stabmon.records import BATCH_SIZE, Event, Snapshot
from tests.detectors.series import alerts_of, make_series, told


def run(dead: ArrayLike, saturated: ArrayLike | None = None, **more: ArrayLike) -> list[Snapshot]:
    dead = np.asarray(dead, float)
    none = np.zeros_like(dead) if saturated is None else saturated
    return make_series({"dead_unit_share": dead, "saturated_unit_share": none, **more})


def rises(to: float, at: int = 100, start: float = 0.05, count: int = 200) -> Floats:
    """`start`, and `to` from that step on."""
    return np.where(np.arange(1, count + 1) < at, start, to)


def test_half_of_a_layer_that_dies_is_told_at_the_fifth_reading() -> None:
    (alert,) = alerts_of(DeadUnits(), run(rises(0.55), learning_rate=np.full(200, 3e-3)))
    assert (alert.step, alert.since, alert.severity) == (104, 100, "warning")
    assert alert.score == pytest.approx(1.1)
    assert "has lost 55% of a layer's hidden units" in alert.action
    assert "lr <= 1e-3" in alert.action
    assert alert.evidence["early_share"] == pytest.approx(0.05)


def test_dead_and_saturated_units_add_up() -> None:
    (alert,) = alerts_of(DeadUnits(), run(rises(0.1, start=0.0), rises(0.45, start=0.0)))
    assert "saturated" in alert.cause
    assert alerts_of(DeadUnits(), run(rises(0.05, start=0.0), rises(0.44, start=0.0))) == []


@pytest.mark.parametrize("start", [0.0, 0.2, 0.4, 0.6, 0.9])
def test_the_line_is_half_or_a_quarter_over_the_layer_s_own_beginning(start: float) -> None:
    line = max(0.5, start + 0.25)
    assert alerts_of(DeadUnits(), run(rises(line - 0.01, start=start))) == []
    assert len(alerts_of(DeadUnits(), run(rises(min(line + 0.001, 1), start=start)))) == (line < 1)


def test_four_readings_in_a_row_are_silent() -> None:
    dead = rises(0.8)
    dead[100:][np.arange(100) % 5 == 3] = 0.3
    assert alerts_of(DeadUnits(), run(dead)) == []


def test_the_first_steps_of_a_healthy_hot_run_are_silent_as_is_a_stall() -> None:
    """Measured at lr 1e-2: .65 of the units look dead while tokens are alike, and are back once they are not."""
    t = np.arange(1, 301)
    dead = np.interp(
        t, [1, 2, 5, 10, 25, 35, 40, 50, 60, 300], [0, 0.26, 0.48, 0.61, 0.65, 0.59, 0.35, 0.2, 0.06, 0.14]
    )
    share = np.interp(t, [1, 2, 3, 5, 30, 35, 38, 41, 300], [0.52, 0.03, 0.01, 0.004, 0.014, 0.09, 0.32, 0.49, 0.9])
    assert alerts_of(DeadUnits(), run(dead, context_share=share)) == []
    assert alerts_of(DeadUnits(), run(np.maximum(dead, 0.6), context_share=np.minimum(share, 0.01))) == []
    assert alerts_of(DeadUnits(), run(rises(0.9), context_share=np.full(200, 0.5))) != []


def test_a_smaller_batch_moves_the_beginning_and_a_layer_that_is_lost_stays_so() -> None:
    event = Event(100, 0.0, BATCH_SIZE, {"size": 64.0})
    for lost, expected in ((0.6, []), (0.0, [(104, "warning")])):
        alarm, alerts = Alarm(DeadUnits(), "run"), []
        for snapshot in run(rises(0.6, start=0.1 if lost else 0.0)):
            if snapshot.step == (100 if lost else 150):
                alarm.notice(event)
            alerts += alarm.judge(snapshot)
        assert told(alerts) == expected


def test_the_worst_layer_is_named_and_what_speaks_against_the_batch() -> None:
    dead = np.stack([rises(0.1), rises(0.2), rises(0.7)], axis=1)
    (alert,) = alerts_of(DeadUnits(), run(dead, context_share=np.full(200, 0.8)))
    assert alert.layer == 2
    assert alert.ruled_out == (
        "sparse from the start: 5% of these units were lost early in the run",
        "tokens that are all alike: context share 0.8",
        "odd or few tokens in the batch: the median layer has lost 20%",
    )


def test_it_is_cleared_when_they_are_back() -> None:
    dead = rises(0.7)
    dead[149:] = 0.1
    assert told(alerts_of(DeadUnits(), run(dead))) == [(104, "warning"), (159, "cleared")]
