"""Detectors: their scores over time, and how each stands."""

import sqlite3
from pathlib import Path

import pytest

from stabmon.records import NOT_SEEN, PART_FAILED, Event
from stabmon.server import answers
from stabmon.server.history import History
from tests.server.recorded import Writing, alert, snapshot

NEEDS = {"spike": ("loss",), "residual_blowup": ("norm_input_msq",), "attention_blowup": ("attention_logit_max",)}
EVERY = 0, 2**62, 1000


@pytest.fixture
def writing(tmp_path: Path) -> Writing:
    made = Writing(tmp_path / "r1.stabmon")
    made.judged_by(NEEDS)
    return made


def history(writing: Writing) -> History:
    found = History(writing.path)
    while found.refresh():
        pass
    return found


def test_scores_are_those_of_the_row_and_only_where_the_statistic_was_read(writing: Writing) -> None:
    for step in range(1, 21):
        writing.scored(step / 10, step / 100, 0.0)
        writing.emit(snapshot(step, layers=step % 10 == 0))
    found = answers.scores(history(writing), [], *EVERY)
    lines = {line.site.name: line.high for line in found.lines}
    assert found.steps == list(range(1, 21))
    assert lines["spike"] == pytest.approx([step / 10 for step in range(1, 21)])
    assert [value for value in lines["residual_blowup"] if value is not None] == pytest.approx([0.1, 0.2])
    assert set(lines["attention_blowup"]) == {None}
    assert [line.site.name for line in answers.scores(history(writing), ["spike"], *EVERY).lines] == ["spike"]


def test_each_detector_says_how_it_stands(writing: Writing) -> None:
    writing.scored(2.0, 0.5, 0.0)
    failed = Event(1, 1.0, PART_FAILED, {"part": "residual_blowup", "error": "KeyError"})
    writing.step(1, alerts=[alert(1, "warning", detector="spike")], events=[failed])
    spike, blowup, attention = answers.detectors(history(writing)).detectors
    assert (spike.state, spike.severity, spike.score, spike.score_step) == ("alert", "warning", 2.0, 1)
    assert (spike.title, spike.runbook) == ("the loss jumps above its trend", "runbook/spike")
    assert (blowup.state, blowup.reason[:30]) == ("failed", "It failed at step 1 (KeyError)")
    assert (attention.state, attention.missing) == ("cannot_run", ["attention_logit_max"])
    assert attention.reason == "It needs attention_logit_max, which this run does not read."


def test_a_resume_with_other_detectors_goes_on_with_theirs(writing: Writing) -> None:
    for _ in range(4):
        writing.scored(1.5, 0.0, 0.0)
        writing.step()
    writing.close()
    resumed = Writing(writing.path, resume_at=2)
    resumed.judged_by({"flat": ("loss",)})
    resumed.scored(0.75)
    resumed.step()
    found = history(resumed)
    lines = {line.site.name: line.high for line in answers.scores(found, [], *EVERY).lines}
    assert lines["spike"] == [1.5, 1.5, None]
    assert lines["flat"] == [None, None, 0.75]
    assert [row.name for row in answers.detectors(found).detectors] == ["flat"]


def test_a_run_log_of_an_earlier_version_has_no_scores_but_its_alerts_detectors(writing: Writing) -> None:
    writing.step(3, alerts=[alert(3)])
    writing.close()
    with sqlite3.connect(writing.path) as db:
        db.executescript("DROP TABLE scores; DROP TABLE detectors")
    db.close()
    found = answers.detectors(history(writing))
    assert (found.recorded, [row.name for row in found.detectors]) == (False, ["context_stall"])
    assert answers.scores(history(writing), [], *EVERY).lines == []


def test_what_could_not_be_looked_at_is_told_in_its_words(writing: Writing) -> None:
    told = Event(1, 1.0, NOT_SEEN, {"what": "attention in h.0", "why": "It is compiled.", "todo": "Use sdpa."})
    gone = Event(1, 1.0, PART_FAILED, {"part": "output_change", "error": "RuntimeError"})
    writing.step(1, events=[told, gone])
    first, second = answers.unseen(history(writing))
    assert (first.what, first.why, first.todo) == ("attention in h.0", "It is compiled.", "Use sdpa.")
    assert (second.what, second.why) == ("output change", "It failed (RuntimeError) and was dropped.")
    assert answers.words(history(writing)).unseen == ["attention in h.0", "output change"]


def test_a_profile_has_the_first_reading_the_one_before_a_step_and_the_newest(writing: Writing) -> None:
    for step in range(1, 41):
        writing.emit(snapshot(step, layers=step % 10 == 0))
    found = answers.profile(history(writing), "norm_input_msq", 25)
    assert (found.first_step, found.first) == (10, [10.0, 20.0])
    assert (found.step, found.at) == (20, [20.0, 40.0])
    assert (found.latest_step, found.latest) == (40, [40.0, 80.0])
    assert found.band is None, "it was not seen from its first step on"
    assert answers.profile(history(writing), "norm_input_msq", 5).at == []
