"""Figures of runs whose alarms are made up, counted by hand."""

import numpy as np
import pytest

from stabmon.bench.detection.curves import Curve
from stabmon.bench.detection.figures import Graded, Share, confusion, false_alarms, figures
from stabmon.bench.detection.judging import Judged, Ruled, Spoken, rules, spoken
from stabmon.bench.detection.outcomes import FAILURES, QUIET, Class, Outcome
from stabmon.bench.detection.result import result
from stabmon.bench.detection.targets import targets
from stabmon.bench.detection.telling import TELLS_OF, tells_of
from stabmon.bench.detection.versus import versus
from stabmon.detectors import default_detectors, loss_detectors
from stabmon.records import Alert

STEPS = 100
STALL, SHOCK, GROWTH = ("STALL",), ("SPIKE", "BLOW-UP"), ("BLOW-UP",)


def run(
    name: str,
    label: Class | None,
    *said: tuple[tuple[Class, ...], int | None, int | None],
    begins: int = 1,
    onset: int | None = None,
    also: tuple[Class, ...] = (),
    rule: tuple[int, ...] = (),
) -> Graded:
    """`said`: classes, step of the warning, of the critical."""
    nothing = np.full(STEPS, np.nan)
    curve = Curve(np.arange(1, STEPS + 1), nothing, nothing, nothing)
    alarms = [Spoken("made_up", classes, warned, critical) for classes, warned, critical in said]
    of_rules = {name: Ruled(rule, rule[:1]) for name in rules()}
    return Graded(Outcome(label, "", begins, onset, also), Judged(name, curve, alarms, of_rules))


RUNS = [
    run("stall-1", "STALL", (STALL, 10, 40), onset=30, rule=(90,)),
    run("stall-2", "STALL", (STALL, 50, None), onset=30),
    run("stall-3", "STALL", onset=30),
    run("late", "STALL", (STALL, 95, None), onset=30),
    run("up", "BLOW-UP", (SHOCK, 45, 60), begins=40, onset=80, rule=(20, 70)),
    run("early", "SPIKE", (STALL, 20, None), (SHOCK, 41, None), begins=40, onset=40),
    run("wrong", "SPIKE", (STALL, 45, None), begins=40, onset=40, also=("STALL",)),
    run("delayed", "DELAYED", (STALL, 15, None), rule=(60,)),
    run("paged", "HEALTHY", (GROWTH, 20, 25)),
    run("quiet", "HEALTHY"),
    run("harmless", "HARMLESS", (SHOCK, 50, None), (SHOCK, 70, 71), (STALL, 10, None), begins=40),
    run("unclear", None, (STALL, 10, 20)),
]


def test_recall_and_precision_of_a_failure_are_of_warnings_that_name_it() -> None:
    found = figures(RUNS)
    assert (found["STALL"].recall, found["BLOW-UP"].recall, found["SPIKE"].recall) == (
        Share(3, 4),
        Share(1, 1),
        Share(1, 2),
    )
    # Called a stall are the three, the spike whose first warning says so, and the delayed run.
    assert found["STALL"].precision == Share(3, 5)
    # The paged run is called a blow-up; the harmless one is called a spike, which is right enough.
    assert found["BLOW-UP"].precision == Share(1, 2)
    assert found["SPIKE"].precision == Share(1, 1)
    assert found["STALL"].critical == Share(1, 4)
    assert (found["STALL"].critical_precision, found["BLOW-UP"].critical_precision) == (Share(1, 1), Share(1, 2))
    assert found["SPIKE"].critical_precision == Share(0, 1)  # the critical of the harmless run is false


def test_leads_count_from_the_first_right_alarm_to_the_onset() -> None:
    found = figures(RUNS)
    assert sorted(found["STALL"].leads) == [-65, -20, 20]
    assert (found["STALL"].lead(0.5), found["STALL"].lead(0.1)) == (-20, pytest.approx(-56))
    assert list(found["SPIKE"].leads) == [-1]
    assert found["STALL"].in_time == Share(2, 4)  # within 30 steps
    assert found["STALL"].critical_in_time == Share(1, 4)
    assert found["SPIKE"].in_time == Share(1, 2)
    assert found["HEALTHY"].lead(0.5) is None


def test_a_quiet_class_is_right_without_a_critical() -> None:
    found = figures(RUNS)
    assert (found["HEALTHY"].recall, found["DELAYED"].recall, found["HARMLESS"].recall) == (
        Share(1, 2),
        Share(1, 1),
        Share(0, 1),
    )
    assert found["HEALTHY"].precision == Share(2, 7)  # of the runs without a critical, five failed


def test_false_alarms_are_those_on_steps_where_nothing_is_wrong() -> None:
    found = false_alarms(RUNS)
    # Three quiet runs and a harmless one of 100 steps, and the 39 before the fault of three.
    assert found.critical.points == 4 * 100 + 3 * 39
    assert found.critical.events == 2  # "paged" and "harmless"
    assert found.warning.points == 3 * 100 + 4 * 39  # after a fault that did no harm a warning is not false
    assert found.warning.events == 4  # "delayed", "paged", and before their faults "early" and "harmless"
    assert found.runs == Share(2, 4)
    assert found.per_day(found.critical) == pytest.approx(86_400 * 2 / 517)
    low, high = found.critical.interval
    assert (low, high) == pytest.approx((1e5 * 0.242209 / 517, 1e5 * 7.224688 / 517), rel=1e-5)  # Garwood's table


def test_the_confusion_has_every_graded_run_once() -> None:
    found = confusion(RUNS)
    assert {name: dict(row) for name, row in found.items()} == {
        "STALL": {"STALL": 3, "nothing": 1},
        "BLOW-UP": {"BLOW-UP": 1},
        "SPIKE": {"SPIKE": 1, "STALL": 1},
        "DELAYED": {"STALL": 1},
        "HEALTHY": {"BLOW-UP": 1, "nothing": 1},
        "HARMLESS": {"SPIKE": 1},
    }


def test_a_rule_is_judged_on_the_same_runs_from_the_fault_on() -> None:
    found = versus(RUNS)["patience-100"]
    assert found.recall == Share(2, 7)
    assert sorted(found.leads) == [-60, 10]  # the alarm at 20 came before the fault
    assert found.precision == Share(2, 3)
    assert found.false.events == 2  # at 60 of the delayed run, at 20 before the fault
    assert list(versus(RUNS)) == ["stabmon, warning", "stabmon, critical", *rules()]


def test_the_first_warning_names_the_class_or_is_true_of_the_loss() -> None:
    wrong = next(run for run in RUNS if run.name == "wrong")
    assert (wrong.called(), wrong.true()) == ("STALL", True)
    named = next(target for target in targets(RUNS) if "names the right class" in target.what)
    assert (named.value, named.missed) == (pytest.approx(5 / 6), ["wrong"])


def test_the_json_has_the_shape_that_the_bench_of_recorded_runs_has() -> None:
    found = result(RUNS)
    assert set(found) >= {"classes", "false_alarms", "baselines", "targets", "confusion"}
    assert set(found["classes"]["STALL"]) >= {"runs", "precision", "recall", "lead_median", "lead_p10"}
    assert set(found["false_alarms"]) >= {"checks", "critical", "warning", "per_1e5", "interval"}
    assert found["classes"]["STALL"]["recall_interval"] == pytest.approx((0.194120, 0.993691), rel=1e-5)


def alert(step: int, severity: str, state: str = "raised", detector: str = "spike", **evidence: float) -> Alert:
    return Alert("run", detector, state, severity, step, 0.0, step, "", None, 1.0, "", evidence=evidence)  # type: ignore[arg-type]


def test_an_incident_lasts_from_where_it_is_raised_to_where_it_is_cleared() -> None:
    told = [alert(10, "info"), alert(20, "warning"), alert(30, "critical"), alert(40, "warning")]
    whole = Spoken("spike", SHOCK, 20, 30, ((10, 0, 1.0), (20, 1, 1.0), (30, 2, 1.0), (40, 1, 1.0)))
    assert spoken(told) == [whole]
    again = [*told, alert(50, "warning", "cleared"), alert(60, "info")]
    assert spoken(again) == [whole, Spoken("spike", SHOCK, told=((60, 0, 1.0),))]


def test_every_detector_tells_of_a_class_that_can_fail() -> None:
    names = {detector.name for detector in (*default_detectors(), *loss_detectors())}
    assert names <= set(TELLS_OF)
    assert {name for classes in TELLS_OF.values() for name in classes} <= set(FAILURES)
    assert not set(FAILURES) & set(QUIET)


def test_a_loss_shift_says_whose_fault_it_is() -> None:
    assert tells_of(alert(1, "critical", detector="loss_shift", data_fault=1.0)) == ("DATA",)
    assert tells_of(alert(1, "critical", detector="loss_shift", data_fault=0.0)) == ("SPIKE", "BLOW-UP")
