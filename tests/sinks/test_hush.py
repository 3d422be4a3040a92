import logging
import sqlite3
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from stabmon.records import CHECKPOINT, Alert, Event, Severity
from stabmon.runlog import RunLogWriter, read
from stabmon.runlog.marks import Mark, add_mark, marks_of
from stabmon.sinks.console import Console
from stabmon.sinks.hush import Hush, Hushed, hushed
from tests.snapshots import RUN, Recorder, alert, snapshot


@pytest.fixture
def log(tmp_path: Path) -> RunLogWriter:
    return RunLogWriter(tmp_path / "r.stabmon", RUN)


def mute(log: RunLogWriter, until: int, detector: str = "stall", step: int = 4) -> None:
    add_mark(log.path, Mark(f"{detector}:{step}", "muted", step, 1.0, until))


class Heard:
    """The steps at which the console told something, of a run that is written as well."""

    def __init__(
        self, log: RunLogWriter, caplog: pytest.LogCaptureFixture, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._log, self._caplog = log, caplog
        self._console = hushed(Console(), Hush(log.path, clock))

    def recall(self, newest: int) -> None:
        assert isinstance(self._console, Hushed)
        self._console.recall(read(self._log.path).alerts, snapshot(newest, 1.0))

    def at(self, step: int, *alerts: Alert, events: Sequence[Event] = ()) -> list[str]:
        self._caplog.clear()
        taken = snapshot(step, 1.0)
        self._log.emit(taken, alerts, events)
        with self._caplog.at_level(logging.INFO, logger="stabmon"):
            self._console.emit(taken, alerts, events)
        return [record.getMessage().partition("\n")[0] for record in self._caplog.records]


@pytest.fixture
def heard(log: RunLogWriter, caplog: pytest.LogCaptureFixture) -> Heard:
    return Heard(log, caplog)


def test_a_muted_detector_is_not_told_of_until_then_and_never_lost_in_the_run_log(
    heard: Heard, log: RunLogWriter
) -> None:
    told = "r1 is not learning. Restart"
    assert heard.at(4, alert(4)) == [told]
    mute(log, until=20)
    critical: Severity = "critical"
    assert heard.at(10, alert(10, critical)) == []
    assert heard.at(12, alert(12, state="cleared")) == []
    assert heard.at(20, alert(20)) == []
    assert [known.step for known in read(log.path).alerts] == [4, 10, 12, 20]


def test_what_still_stands_when_the_mute_is_over_is_told_then(heard: Heard, log: RunLogWriter) -> None:
    heard.at(4, alert(4))
    mute(log, until=20)
    assert heard.at(10, alert(10, "critical")) == []
    assert heard.at(20) == []
    assert heard.at(21) == ["r1 is not learning. Restart"]
    assert heard.at(22) == []


def test_a_mute_that_is_prolonged_holds_until_its_new_end_and_one_that_is_taken_back_not_at_all(
    heard: Heard, log: RunLogWriter
) -> None:
    mute(log, until=20)
    assert heard.at(10, alert(10)) == []
    mute(log, until=30)
    assert heard.at(25) == []
    assert heard.at(31) == ["r1 is not learning. Restart"]
    mute(log, until=90)
    add_mark(log.path, Mark("stall:4", "none", 31, 1.0))
    assert heard.at(40, alert(40)) == ["r1 is not learning. Restart"]


def test_what_waits_for_the_end_of_a_mute_is_told_some_seconds_after_it_is_taken_back(
    log: RunLogWriter, caplog: pytest.LogCaptureFixture
) -> None:
    now = 0.0
    heard = Heard(log, caplog, lambda: now)
    mute(log, until=1_000_000)
    assert heard.at(10, alert(10, "critical")) == []
    add_mark(log.path, Mark("stall:4", "none", 11, 1.0))
    now = 4.9
    assert heard.at(12) == []  # the file is not asked at every step
    now = 5.0
    assert heard.at(13) == ["r1 is not learning. Restart"]
    assert heard.at(14) == []


def test_who_holds_the_run_log_neither_ends_a_mute_nor_holds_up_the_training(log: RunLogWriter) -> None:
    mute(log, until=50)
    hush = Hush(log.path)
    assert hush.muted(9) == {"stall": 50}
    with closing(sqlite3.connect(log.path, isolation_level=None)) as other:
        other.execute("PRAGMA locking_mode = EXCLUSIVE")
        log.close("finished")  # so that nobody else has it open
        other.execute("BEGIN EXCLUSIVE")
        begin = time.monotonic()
        with pytest.raises(ValueError, match="locked"):
            marks_of(log.path, 0)
        assert hush.muted(12) == {"stall": 50}
        assert time.monotonic() - begin < 3  # SQLite's own patience is 5 s for each


def resumed(log: RunLogWriter, caplog: pytest.LogCaptureFixture, newest: int) -> Heard:
    """Another process goes on with the run log, after that step."""
    log.close("stopped")
    heard = Heard(RunLogWriter(log.path, RUN, resume_at=newest), caplog)
    heard.recall(newest)
    return heard


def test_what_was_withheld_before_a_restart_is_told_when_the_mute_ends(
    heard: Heard, log: RunLogWriter, caplog: pytest.LogCaptureFixture
) -> None:
    heard.at(4)
    mute(log, until=20)
    assert heard.at(10, alert(10, "critical")) == []
    again = resumed(log, caplog, 10)
    assert again.at(20) == []
    assert again.at(21) == ["r1 is not learning. Restart"]
    assert again.at(22) == []


def test_what_was_told_before_a_restart_is_not_told_again(
    heard: Heard, log: RunLogWriter, caplog: pytest.LogCaptureFixture
) -> None:
    assert len(heard.at(4, alert(4))) == 1  # before it was muted
    mute(log, until=20, step=5)
    heard.at(5)
    again = resumed(log, caplog, 5)
    assert again.at(21) == []


def test_a_mute_whose_end_was_lived_through_is_over_after_a_restart(
    heard: Heard, log: RunLogWriter, caplog: pytest.LogCaptureFixture
) -> None:
    mute(log, until=12)
    assert heard.at(10, alert(10, "critical")) == []
    assert len(heard.at(13)) == 1
    assert resumed(log, caplog, 13).at(14) == []


def test_a_mute_that_was_taken_back_while_nothing_ran_is_over_at_once(
    heard: Heard, log: RunLogWriter, caplog: pytest.LogCaptureFixture
) -> None:
    mute(log, until=1000)
    assert heard.at(10, alert(10, "critical")) == []
    log.close("stopped")
    add_mark(log.path, Mark("stall:4", "none", 10, 1.0))
    again = Heard(RunLogWriter(log.path, RUN, resume_at=10), caplog)
    again.recall(10)
    assert len(again.at(11)) == 1


def saved(step: int, gone: str = "") -> Event:
    return Event(step, 1.0, CHECKPOINT, {"name": f"checkpoint-{step}", "gone": gone})


def test_people_are_told_which_checkpoint_a_remedy_means_also_after_a_restart(
    log: RunLogWriter, caplog: pytest.LogCaptureFixture
) -> None:
    heard = Heard(log, caplog)
    heard.at(1, events=[saved(1), saved(2)])
    lost = replace(alert(10), since=8, remedies=("Roll back to a checkpoint before step 8, and warm up.",))
    heard.at(10, lost)
    assert "1. Roll back to a checkpoint before step 8 (step 2), and warm up." in caplog.text
    assert read(log.path).alerts[0].remedies == lost.remedies  # which a replay gives again
    again = resumed(log, caplog, 10)
    again.at(11, replace(lost, step=11), events=[saved(11, gone="2")])
    assert "1. Roll back to a checkpoint before step 8 (step 1), and warm up." in caplog.text


def test_other_detectors_are_told_of_and_so_is_the_end_of_what_was_told(heard: Heard, log: RunLogWriter) -> None:
    heard.at(4, alert(4))
    mute(log, until=50)
    assert heard.at(5, alert(5, detector="spike")) == ["r1 is not learning. Restart"]
    assert len(heard.at(9, alert(9, state="cleared"))) == 1


def test_a_run_log_that_cannot_be_read_mutes_nobody(heard: Heard, log: RunLogWriter) -> None:
    heard.at(4, alert(4))
    mute(log, until=50)
    log.path.rename(log.path.with_suffix(".gone"))
    hush = Hush(log.path)
    assert hush.muted(5) == {}


def test_only_what_tells_people_is_hushed(log: RunLogWriter) -> None:
    recorder = Recorder()
    assert hushed(recorder, Hush(log.path)) is recorder
    console = Console()
    assert hushed(console, None) is console
