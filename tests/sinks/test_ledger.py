"""What became of an alert on its way, in the run log."""

import sqlite3
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from stabmon.records import Alert
from stabmon.runlog import RunLogWriter
from stabmon.runlog.reader import reading
from stabmon.runlog.told import Told, told_in
from stabmon.sinks.delivery import Delivery, NotNow, Refused, Why
from stabmon.sinks.ledger import Ledger
from tests.snapshots import RUN, alert


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The run log of the run that the alerts are of."""
    found = tmp_path / f"{RUN.name}.stabmon"
    RunLogWriter(found, RUN).close("finished")
    return found


def told(path: Path) -> list[Told]:
    with reading(path) as db:
        return told_in(db)


def delivered(path: Path, send: Callable[[Sequence[Alert], Why], None], *alerts: Alert) -> list[tuple[str, str, str]]:
    begin = time.time()
    delivery = Delivery("slack", send, None, ledger=Ledger(path.parent))
    delivery.take(alerts)
    delivery.close()
    found = told(path)
    assert all(begin <= one.time <= time.time() and one.to == "slack" for one in found)
    return [(one.alert, one.outcome, one.why) for one in found]


def test_what_was_sent_is_in_the_run_log_when_the_delivery_is_closed(path: Path) -> None:
    assert delivered(path, lambda alerts, why: None, alert(4, "critical")) == [("stall:4", "sent", "")]


def test_what_was_refused_says_why(path: Path) -> None:
    def send(alerts: Sequence[Alert], why: Why) -> None:
        raise Refused("Slack refused a message (404 no_service); check the webhook")

    assert delivered(path, send, alert(4)) == [
        ("stall:4", "failed", "Slack refused a message (404 no_service); check the webhook")
    ]


def test_what_is_tried_again_is_entered_once_until_it_arrives(path: Path) -> None:
    tries = iter([True, True, False])

    def send(alerts: Sequence[Alert], why: Why) -> None:
        if next(tries):
            raise NotNow("Slack cannot be reached (timed out)")

    assert delivered(path, send, alert(4, "critical")) == [
        ("stall:4", "waiting", "Slack cannot be reached (timed out)"),
        ("stall:4", "sent", ""),
    ]


def test_what_is_held_back_for_a_digest_says_so_until_that_is_sent(path: Path) -> None:
    found = delivered(path, lambda alerts, why: None, alert(4), alert(9))
    assert [outcome for name, outcome, _ in found if name == "stall:4"] == ["sent"]
    assert [outcome for name, outcome, _ in found if name == "stall:9"] == ["held", "sent"]


def test_whoever_writes_the_run_log_is_waited_for_and_nobody_waits_for_the_ledger(path: Path) -> None:
    ledger = Ledger(path.parent)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        begin = time.thread_time()
        ledger.enter([alert(4)], "slack", "sent")
        assert time.thread_time() - begin < 0.1
        other.execute("ROLLBACK")
    ledger.wait(10)
    assert [one.outcome for one in told(path)] == ["sent"]


def test_a_run_without_a_run_log_keeps_nothing_and_says_nothing(tmp_path: Path, path: Path) -> None:
    for folder in (None, tmp_path / "elsewhere"):
        ledger = Ledger(folder)
        ledger.enter([alert(4)], "slack", "sent")
        ledger.wait(10)
    assert told(path) == []
    assert not (tmp_path / "elsewhere").exists()
