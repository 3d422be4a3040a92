"""When a run will end, what it could go back to, when what is wrong began, and who was told."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from stabmon.records import CHECKPOINT, NOT_SEEN, PLANNED, Event, Run
from stabmon.runlog import RunLogWriter
from stabmon.runlog.marks import Mark, add_mark
from stabmon.runlog.told import Told, add_told
from stabmon.server import answers
from stabmon.server.history import History
from stabmon.server.progress import left
from stabmon.server.standing import Standing
from stabmon.server.verdict import verdict
from tests.server.recorded import STARTED, Writing, alert, snapshot


@pytest.fixture
def writing(tmp_path: Path) -> Writing:
    return Writing(tmp_path / "r1.stabmon")


def planned(steps: int, step: int = 0) -> Event:
    return Event(step, STARTED + step, PLANNED, {"steps": steps})


def saved(step: int, gone: str = "") -> Event:
    return Event(step, STARTED + step, CHECKPOINT, {"name": f"checkpoint-{step}", "gone": gone})


def looked(writing: Writing) -> History:
    history = History(writing.path)
    while history.refresh():
        pass
    return history


def text(writing: Writing, age: float = 1.0) -> str:
    standing = Standing(writing.path)
    standing.refresh()
    return verdict(standing, STARTED + writing.last + age).text


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (20, "about a minute left"),
        (360, "some 6 min left"),
        (1000, "some 15 min left"),
        (3500, "some 1 h left"),
        (12_000, "some 3 h 20 min left"),
        (35_900, "some 10 h left"),
        (170_000, "some 47 h left"),
        (300_000, "some 3 d left"),
    ],
)
def test_what_is_left_is_never_said_more_exactly_than_it_is_known(seconds: float, words: str) -> None:
    assert left(seconds) == words


def test_a_run_whose_end_is_planned_says_how_long_it_still_takes(writing: Writing) -> None:
    writing.step(49, events=[planned(12_100)])
    assert (
        text(writing) == "Step 49 of 12,100, loss 2, 0.4 nats below the bigram baseline. Too early to call it healthy."
    )
    writing.step(51)  # 12,000 steps of a second are 3 h 20 min
    assert text(writing) == ("Step 100 of 12,100, loss 2, 0.4 nats below the bigram baseline. Some 3 h 20 min left.")
    history = looked(writing)
    assert history.seconds_left() == 12_000
    assert "left" not in text(writing, age=40)  # no data: nobody knows
    writing.close()
    assert "left" not in text(writing)


def test_without_a_plan_nothing_is_said_of_the_end_and_a_plan_that_is_over_is_none(writing: Writing) -> None:
    writing.step(100)
    assert (looked(writing).seconds_left(), text(writing)[:9]) == (None, "Step 100,")
    writing.step(1, events=[planned(60)])
    assert (looked(writing).seconds_left(), text(writing)[:9]) == (None, "Step 101,")


def test_the_pace_is_that_of_late_with_pauses_and_a_stop_does_not_count(writing: Writing) -> None:
    """100 steps of 1 s, a day's stop, then 200 steps of 3 s: 3 s each."""
    writing.step(100, events=[planned(1300)])
    for step in range(101, 301):
        writing.emit(replace(snapshot(step), time=STARTED + 86_400 + 3 * step))
    assert looked(writing).seconds_left() == 3000


def test_an_alert_names_the_last_checkpoint_of_before_it_that_was_not_deleted(writing: Writing) -> None:
    for step in (10, 20, 30):
        writing.step(10, events=[saved(step)])
    writing.step(10, events=[saved(40, gone="10 20")])
    todo = ("Roll back to a checkpoint before step 35, and go on.", "Warm up")
    writing.step(1, alerts=[alert(41, since=35, remedies=todo)])
    history = looked(writing)
    (row,) = answers.alerts(history).alerts
    assert row.checkpoint is not None
    assert (row.checkpoint.step, row.checkpoint.name) == (30, "checkpoint-30")
    assert row.remedies == ["Roll back to a checkpoint before step 35 (step 30), and go on.", "Warm up"]
    assert text(writing).endswith("Last checkpoint before it: step 30 (checkpoint-30).")
    found = answers.run("r1", history).checkpoint
    assert found is not None
    assert found.step == 30
    writing.step(9, events=[saved(50, gone="30")])
    history = looked(writing)
    (row,) = answers.alerts(history).alerts
    assert (row.checkpoint, row.saves) == (None, True)
    assert text(writing).endswith("There is no checkpoint from before it.")


def test_of_a_run_that_tells_of_no_checkpoint_nothing_is_said(writing: Writing) -> None:
    writing.step(41, alerts=[alert(41)])
    (row,) = answers.alerts(looked(writing)).alerts
    assert (row.checkpoint, row.saves) == (None, False)
    assert "heckpoint" not in text(writing)


def test_the_time_at_which_an_alert_began_is_that_of_its_step_also_where_rows_are_merged(tmp_path: Path) -> None:
    """Every step lasts a second; of 5,000 the overview keeps the last of every second."""
    writer = RunLogWriter(tmp_path / "r1.stabmon", Run("r1", started=STARTED))
    for step in range(1, 5001):
        if step != 4711:  # lost on its way
            writer.emit(snapshot(step, layers=False), [alert(step, since=1234)] if step == 1300 else [], [])
    writer.close("finished")
    history = History(writer.path)
    while history.refresh():
        pass
    assert history._scalars.width == 2
    assert history.time_at(1234) == STARTED + 1234
    assert history.time_at(4711) == STARTED + 4712
    assert history.time_at(9001) is None
    (row,) = answers.alerts(history).alerts
    assert row.since_time == STARTED + 1234
    assert answers.run("r1", history).since_time == STARTED + 1234


def test_who_was_told_is_the_last_word_of_each(writing: Writing) -> None:
    writing.step(11, alerts=[alert(11)])
    for outcome, why in (("waiting", "Slack cannot be reached (timed out)"), ("sent", "")):
        add_told(writing.path, Told("context_stall:11", "slack", outcome, 5.0, why))  # type: ignore[arg-type]
    add_told(writing.path, Told("context_stall:11", "apprise_ntfy", "failed", 6.0, "raised OSError"))
    add_told(writing.path, Told("other:3", "slack", "sent", 7.0))
    history = looked(writing)
    (row,) = answers.alerts(history).alerts
    assert [(told.to, told.outcome, told.time) for told in row.told] == [
        ("slack", "sent", 5.0),
        ("apprise_ntfy", "failed", 6.0),
    ]
    version = history.version
    add_told(writing.path, Told("context_stall:11", "slack", "failed", 8.0))
    history.look_again()
    history.refresh()
    assert history.version == version + 1  # which is what pages wait for


def test_an_alert_that_was_muted_when_it_came_says_until_when(writing: Writing) -> None:
    writing.step(20)
    add_mark(writing.path, Mark("context_stall:5", "muted", 20, 1.0, until=60))
    writing.step(10, alerts=[alert(30)])
    add_mark(writing.path, Mark("context_stall:5", "none", 31, 2.0))
    writing.step(10, alerts=[alert(40, "warning")])
    later, first = answers.alerts(looked(writing)).alerts
    assert (first.hushed_until, later.hushed_until) == (60, None)


def test_a_run_without_a_step_says_for_how_long_and_why(writing: Writing) -> None:
    assert text(writing, age=301) == "The run has begun 5 min ago, but completed no step."
    detail = {"what": "its steps", "why": "monitor.step was not called.", "todo": "Call it."}
    writing._writer.note([Event(0, STARTED, NOT_SEEN, detail)])
    writing._writer.close("running")
    assert text(writing, age=301) == (
        "The run has begun 5 min ago, but completed no step. monitor.step was not called. Call it."
    )


def test_an_event_that_comes_after_its_row_was_read_is_told_once(writing: Writing) -> None:
    writing.step(5)
    history = looked(writing)
    writing._writer.note([saved(5)])
    writing._writer.close("finished")
    history.look_again()
    history.refresh()
    history.look_again()
    history.refresh()
    assert [event.kind for event in history.events] == [CHECKPOINT]
    assert np.isclose(history.progress.checkpoint().step, 5)  # type: ignore[union-attr]
