"""Stabmon at the recall of a rule, on runs whose alarms are made up: counted by hand."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from stabmon.bench.detection.curves import Curve
from stabmon.bench.detection.figures import Graded, Rate, Share
from stabmon.bench.detection.judging import Judged, Ruled, Spoken, rules
from stabmon.bench.detection.operating import beside
from stabmon.bench.detection.outcomes import Class, Outcome
from stabmon.bench.detection.targets import beats, targets
from stabmon.bench.detection.versus import Versus

INFO, WARNING, CRITICAL = range(3)
FEW, ALL, NONE = "6 sigma/128, loss", "LossNotDecreasing(10)", "CUSUM"


def run(
    name: str,
    label: Class,
    *told: tuple[int, int, float],
    few: Sequence[int] = (),
    every: Sequence[int] = (90,),
    begins: int = 1,
) -> Graded:
    """`told`: (step, severity, score), each of an incident of its own; `few`: steps at which the rule FEW spoke."""
    nothing = np.full(100, np.nan)
    alarms = [
        Spoken("made_up", ("BLOW-UP",), at if rank else None, at if rank == CRITICAL else None, ((at, rank, score),))
        for at, rank, score in told
    ]
    said = {rule: {FEW: few, ALL: every}.get(rule, ()) for rule in rules()}
    curve = Curve(np.arange(1, 101), nothing, nothing, nothing)
    ruled = {rule: Ruled(steps, steps[:1]) for rule, steps in said.items()}
    return Graded(Outcome(label, "", begins, 50), Judged(name, curve, alarms, ruled))


RUNS = [
    run("a", "BLOW-UP", (40, CRITICAL, 5.0), few=[50]),
    run("b", "BLOW-UP", (30, WARNING, 9.0), (55, CRITICAL, 2.0), few=[60]),
    run("c", "BLOW-UP", (5, WARNING, 7.0), (70, WARNING, 3.0), begins=10),
    run("d", "BLOW-UP"),
    run("e", "HEALTHY", (20, WARNING, 2.0), few=[80]),
    run("f", "HEALTHY", (20, INFO, 9.0), every=()),
    run("g", "HARMLESS", (60, WARNING, 8.0), begins=10),
]


def test_the_soonest_of_the_strengths_that_are_precise_enough_is_taken() -> None:
    """Two of four. Criticals alone come 7.5 steps sooner; with the warning of run b at step 30, as precise, 20."""
    found = beside(RUNS)[FEW]
    assert (found.recall, found.precision) == (Share(2, 4), Share(2, 3))
    assert (found.ours_recall, found.ours_precision) == (Share(2, 4), Share(2, 2))
    assert (sorted(found.sooner), found.median) == ([10, 30], 20)
    assert found.beaten


@pytest.mark.parametrize(("false", "sooner", "beaten"), [(2.5, 0, False), (1.5, 20, True)])
def test_weak_warnings_are_no_use_where_the_rule_is_more_precise(false: float, sooner: int, beaten: bool) -> None:
    """Down to a score of 2 they come 20 steps before the critical, and also, or not, where nothing is wrong."""
    fails = run("fails", "BLOW-UP", (60, CRITICAL, 1.0), (40, WARNING, 2.0), few=[60])
    found = beside([fails, run("well", "HEALTHY", (20, WARNING, false))])[FEW]
    assert (found.ours_precision, found.median, found.beaten) == (Share(1, 1), sooner, beaten)


def test_an_info_is_no_alarm() -> None:
    found = beside([run("fails", "BLOW-UP", (30, INFO, 9.0), few=[60])])[FEW]
    assert (found.ours_recall, found.beaten) == (Share(0, 1), False)


def test_at_a_recall_that_stabmon_does_not_have_its_highest_is_shown_and_no_rule_is_beaten() -> None:
    """Warnings from a score of 3 on. A harmless fault may be warned of."""
    found = beside(RUNS)[ALL]
    assert (found.recall, found.precision) == (Share(4, 4), Share(4, 5))
    assert (found.ours_recall, found.ours_precision) == (Share(3, 4), Share(3, 3))
    assert sorted(found.sooner) == [20, 50, 60]
    assert not found.beaten


def test_a_rule_that_spoke_of_no_failure_is_left_out() -> None:
    assert set(beside(RUNS)) == {FEW, ALL}


@pytest.mark.parametrize(("at", "score", "beaten"), [(60, 1.0, False), (59, 1.0, True), (61, 1.0, False)])
def test_at_equal_precision_the_sooner_one_wins(at: int, score: float, beaten: bool) -> None:
    runs = [run("one", "BLOW-UP", (at, WARNING, score), few=[60]), run("two", "HEALTHY")]
    assert beside(runs)[FEW].beaten is beaten


def test_the_target_names_the_rules_that_are_not_beaten() -> None:
    (target,) = (
        target for target in targets(RUNS) if target.what.startswith("the same by the warnings of some strength")
    )
    assert (target.value, list(target.missed)) == (0.5, [ALL])


@pytest.mark.parametrize(
    ("recall", "precision", "lead", "beaten"),
    [
        (4, (10, 10), 5, True),  # as precise as can be, and later
        (4, (10, 10), 20, False),
        (4, (10, 10), 12, False),  # equal in all but recall
        (4, (5, 10), 12, True),
        (10, (5, 10), 12, False),  # speaks of more
    ],
)
def test_a_rule_is_beaten_by_who_is_no_worse_and_better_in_precision_or_lead(
    recall: int, precision: tuple[int, int], lead: int, beaten: bool
) -> None:
    nothing = Rate(0, 1000)
    ours = Versus(Share(9, 10), Share(10, 10), [12] * 9, nothing, {})
    assert beats(ours, Versus(Share(recall, 10), Share(*precision), [lead] * 4, nothing, {})) is beaten
