"""One incident, one alert: what people hear of several detectors that see the same."""

from collections.abc import Sequence

import pytest

from stabmon.detectors import default_detectors, loss_detectors
from stabmon.detectors.incidents import EXPLAINED_BY, Incidents
from stabmon.records import Alert, Severity
from tests.snapshots import alert, snapshot

TABLE = {"symptom": ("cause",), "cause": ("root",)}
LETTERS: dict[str, Severity] = {"i": "info", "w": "warning", "c": "critical"}


def judged(scripts: dict[str, str]) -> list[list[Alert]]:
    """Per step what alarms say: each letter a raised severity, `.` the end, a blank nothing new."""
    steps: list[list[Alert]] = [[] for _ in max(scripts.values(), key=len)]
    for detector, script in scripts.items():
        severity: Severity = "info"
        for step, letter in enumerate(script, 1):
            severity = LETTERS.get(letter, severity)
            if letter != " ":
                state = "cleared" if letter == "." else "raised"
                steps[step - 1].append(alert(step, severity, state, detector))
    return steps


def heard(incidents: Incidents, steps: Sequence[Sequence[Alert]], first: int = 1) -> list[str]:
    """`step detector letter`, as in the scripts."""
    alerts = [a for step, said in enumerate(steps, first) for a in incidents.sift(said, snapshot(step))]
    return [f"{a.step} {a.detector} {'.' if a.state == 'cleared' else a.severity[0]}" for a in alerts]


@pytest.mark.parametrize(
    ("scripts", "told"),
    [
        ({"other": "w c .", "another": "w  ."}, ["1 other w", "1 another w", "3 other c", "4 another .", "5 other ."]),
        ({"cause": "w  ", "symptom": " w "}, ["1 cause w"]),
        ({"symptom": "w", "cause": "w"}, ["1 cause w"]),
        ({"cause": "w  ", "symptom": " wc"}, ["1 cause w", "3 symptom c", "3 cause ."]),
        ({"cause": "  w c", "symptom": " c   "}, ["2 symptom c", "5 cause c", "5 symptom ."]),
        ({"symptom": "c .", "cause": " w "}, ["1 symptom c", "3 cause w", "3 symptom ."]),
        ({"cause": "c  ", "symptom": " wc"}, ["1 cause c"]),
        ({"cause": "w  .", "symptom": " w. "}, ["1 cause w", "4 cause ."]),
        ({"cause": "w .", "symptom": " w "}, ["1 cause w", "3 symptom w", "3 cause ."]),
        ({"cause": "w .  .", "symptom": " w  . "}, ["1 cause w", "3 symptom w", "3 cause .", "5 symptom ."]),
        ({"symptom": "w   .", "cause": "  w  "}, ["1 symptom w", "3 cause w", "3 symptom ."]),
        ({"symptom": "c    ", "cause": "  wc "}, ["1 symptom c", "4 cause c", "4 symptom ."]),
        ({"cause": "cw", "symptom": "c "}, ["1 cause c", "2 symptom c", "2 cause ."]),
        ({"root": "w  .", "cause": " w  ", "symptom": "  w "}, ["1 root w", "4 cause w", "4 root ."]),
    ],
)
def test_what_is_heard_of_what_alarms_say(scripts: dict[str, str], told: list[str]) -> None:
    assert heard(Incidents(TABLE), judged(scripts)) == told


def test_what_was_withheld_is_raised_as_of_now_and_keeps_since_when() -> None:
    incidents, steps = Incidents(TABLE), judged({"cause": "w  .", "symptom": " w  "})
    late = [a for step, said in enumerate(steps, 1) for a in incidents.sift(said, snapshot(step))][1]
    assert (late.detector, late.step, late.time, late.since) == ("symptom", 4, 1004.0, 0)


def test_an_alert_that_became_part_of_another_says_of_which() -> None:
    incidents, steps = Incidents(TABLE), judged({"symptom": "w ", "cause": " w"})
    *_, ended = [a for step, said in enumerate(steps, 1) for a in incidents.sift(said, snapshot(step))]
    assert ended.action == "has symptom as part of cause, which tells of it from here on"
    assert (ended.severity, ended.since, ended.remedies, ended.cause) == ("warning", -1, (), "")


def test_an_alert_becomes_part_of_one_that_is_told_and_not_of_one_that_is_withheld_itself() -> None:
    incidents, steps = Incidents(TABLE), judged({"root": "c  ", "symptom": " w ", "cause": "  w"})
    told = [a for step, said in enumerate(steps, 1) for a in incidents.sift(said, snapshot(step))]
    assert [a.detector for a in told] == ["root", "symptom", "symptom"]
    assert told[-1].action == "has symptom as part of root, which tells of it from here on"


def test_a_collapse_is_part_of_the_blow_up_that_it_came_with() -> None:
    steps = judged({"residual_blowup": "w c", "context_stall": "   w"})
    assert heard(Incidents(), steps) == ["1 residual_blowup w", "3 residual_blowup c"]


@pytest.mark.parametrize(
    ("scripts", "told"),
    [
        ({"cause": "w ", "symptom": " c"}, ["1 cause w", "2 cause c"]),
        ({"symptom": "c ", "cause": " w"}, ["1 symptom c", "2 cause c", "2 symptom ."]),
        ({"cause": "w    ", "symptom": " wcw."}, ["1 cause w", "3 cause c", "4 cause w"]),
        ({"cause": "w  .", "symptom": " c  "}, ["1 cause w", "2 cause c", "4 symptom c", "4 cause ."]),
        ({"cause": "w cw", "symptom": " c  "}, ["1 cause w", "2 cause c"]),
        ({"cause": "i ", "symptom": " c"}, ["1 cause i", "2 symptom c", "2 cause ."]),
        ({"cause": "w  ", "symptom": " c ", "root": "  c"}, ["1 cause w", "2 cause c", "3 root c", "3 cause ."]),
    ],
)
def test_a_cause_that_lasts_is_told_on_at_the_severity_of_its_symptom(scripts: dict[str, str], told: list[str]) -> None:
    assert heard(Incidents(TABLE, lasting=["cause"]), judged(scripts)) == told


def test_a_stall_for_want_of_a_residual_is_told_as_that_with_the_advice_of_that() -> None:
    incidents, steps = Incidents(), judged({"wiring": "w ", "context_stall": " c"})
    first, then = [a for step, said in enumerate(steps, 1) for a in incidents.sift(said, snapshot(step))]
    assert (then.detector, then.severity, then.step, then.since) == ("wiring", "critical", 2, first.since)
    assert then.action == first.action
    assert then.cause == f"{first.cause} It shows as context_stall since step 0."
    assert then.remedies == (*first.remedies, "If it goes on once that is mended: cut the learning rate")


def test_a_dropped_detector_explains_nothing_any_more() -> None:
    incidents = Incidents(TABLE)
    heard(incidents, judged({"cause": "w ", "symptom": " w"}))
    incidents.forget("cause")
    assert heard(incidents, [[], []], first=3) == ["3 symptom w"]


@pytest.mark.parametrize("at", range(1, 7))
def test_a_resume_after_any_step_changes_nothing(at: int) -> None:
    steps = judged({"root": " w  . ", "cause": "w   . ", "symptom": "  w   ", "other": "w  c  "})
    through = Incidents(TABLE)
    told = [a for step, said in enumerate(steps, 1) for a in through.sift(said, snapshot(step))]
    resumed = Incidents(TABLE)
    heard(resumed, steps[:at])
    resumed.resume([a for a in told if a.step <= at])
    after = [a for step, said in enumerate(steps[at:], at + 1) for a in resumed.sift(said, snapshot(step))]
    assert after == [a for a in told if a.step > at]


def test_where_a_resume_shows_less_than_was_told_readers_are_brought_up_to_date() -> None:
    incidents = Incidents(TABLE)
    heard(incidents, judged({"cause": "w"}))
    incidents.resume([alert(1, detector="other")])
    assert heard(incidents, [[]], first=2) == ["2 cause w", "2 other ."]


def test_nothing_explains_itself_through_others() -> None:
    def causes(detector: str, seen: tuple[str, ...]) -> None:
        assert detector not in seen, " <- ".join((*seen, detector))
        for cause in EXPLAINED_BY.get(detector, ()):
            causes(cause, (*seen, detector))

    for detector in EXPLAINED_BY:
        causes(detector, ())


def test_the_table_names_detectors_that_there_are() -> None:
    names = {detector.name for detector in (*default_detectors(), *loss_detectors())}
    assert {*EXPLAINED_BY, *(name for causes in EXPLAINED_BY.values() for name in causes)} <= names
