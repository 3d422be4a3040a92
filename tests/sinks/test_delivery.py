import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from stabmon.records import Alert, Severity
from stabmon.sinks import delivery as module
from stabmon.sinks.delivery import Delivery, NotNow, Refused, Why
from stabmon.sinks.spool import Spool
from tests.sinks.slack_server import until
from tests.snapshots import alert

Message = tuple[list[int], Why]


def at(step: int, severity: Severity = "warning", detector: str = "stall", state: str = "raised") -> Alert:
    """An alert of this moment. One detector's warnings after its first wait for a digest."""
    return replace(alert(step, severity, state, detector), time=time.time())


def calm(count: int) -> list[Alert]:
    """Warnings of as many detectors, so that each goes at once."""
    return [at(step, detector=f"d{step}") for step in range(count)]


class Post:
    """Records what is sent; `fail` decides on an error; while `shut`, a send waits."""

    def __init__(self, fail: Callable[[int, Sequence[Alert]], Exception | None] = lambda attempt, alerts: None) -> None:
        self.sent: list[Message] = []
        self.threads: set[int] = set()
        self.attempts = 0
        self.open = threading.Event()
        self.open.set()
        self._fail = fail

    def __call__(self, alerts: Sequence[Alert], why: Why) -> None:
        self.threads.add(threading.get_ident())
        self.attempts += 1
        error = self._fail(self.attempts, alerts)
        assert self.open.wait(30)
        if error:
            raise error
        self.sent.append(([a.step for a in alerts], why))


def files(folder: Path) -> int:
    return len(list(folder.iterdir())) if folder.exists() else 0


def test_without_an_alert_there_is_no_thread_and_no_folder(tmp_path: Path) -> None:
    before = threading.active_count()
    delivery = Delivery("x", Post(), tmp_path / "spool")
    delivery.take([])
    delivery.take([at(1, "info")])
    delivery.close()
    assert threading.active_count() == before
    assert not (tmp_path / "spool").exists()


def test_take_returns_before_anything_is_sent_with_the_alert_on_disk_and_another_thread_sends_it(
    tmp_path: Path,
) -> None:
    post = Post()
    post.open.clear()
    delivery = Delivery("x", post, tmp_path)
    delivery.take([at(1, "critical")])
    assert (post.sent, files(tmp_path)) == ([], 1)
    post.open.set()
    until(lambda: delivery.sent == 1 and files(tmp_path) == 0)
    assert post.sent == [([1], "new")]
    assert threading.get_ident() not in post.threads
    delivery.close()
    assert not tmp_path.exists()


def test_a_critical_alert_overtakes_the_warnings_that_wait(tmp_path: Path) -> None:
    post = Post()
    post.open.clear()
    delivery = Delivery("x", post, tmp_path)
    delivery.take(calm(1))
    until(lambda: post.attempts == 1)
    delivery.take([*calm(3)[1:], at(9, "critical"), at(10, "critical", state="cleared")])
    post.open.set()
    delivery.close()
    assert [steps for steps, _ in post.sent] == [[0], [9], [10], [1], [2]]


def test_a_critical_alert_does_not_wait_until_a_failed_warning_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_FIRST_REST", 3600.0)
    post = Post(lambda attempt, alerts: NotNow("down") if alerts[0].severity == "warning" else None)
    delivery = Delivery("x", post, tmp_path)
    delivery.take([at(1)])
    until(lambda: post.attempts == 1)
    delivery.take([at(2, "critical", "nonfinite")])
    until(lambda: post.sent == [([2], "new")])
    delivery.close(patience=0.05)


def test_what_passes_is_tried_again_and_told_once_in_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "_FIRST_REST", 0.01)
    delivery = Delivery("x", post := Post(lambda attempt, _: NotNow("down") if attempt < 4 else None), tmp_path)
    delivery.take([at(1)])
    until(lambda: delivery.sent == 1)
    assert (post.attempts, delivery.failed, files(tmp_path)) == (4, 0, 0)
    assert [r.getMessage() for r in caplog.records] == ["stabmon: x: down; it tries again"]
    delivery.close()


@pytest.mark.parametrize(
    ("error", "words"), [(Refused("no_service"), "no_service"), (KeyError("k"), "raised KeyError")]
)
def test_what_does_not_pass_is_logged_once_counted_and_left_to_the_next_process(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, error: Exception, words: str
) -> None:
    delivery = Delivery("x", post := Post(lambda attempt, _: error if attempt < 3 else None), tmp_path)
    delivery.take(calm(4))
    delivery.close()
    assert (delivery.failed, delivery.sent, post.attempts) == (2, 2, 4)
    (record,) = caplog.records
    assert record.getMessage() == f"stabmon: x: {words}; the next run in the same folder sends them ({tmp_path})"
    assert [a.step for a, _ in Spool(tmp_path).leftovers()] == [0, 1]


def test_too_many_waiting_drop_the_oldest_warnings_never_critical_ones_and_are_counted(tmp_path: Path) -> None:
    post = Post()
    post.open.clear()
    delivery = Delivery("x", post, tmp_path)
    delivery.take([at(1000, "critical", "first")])
    until(lambda: post.attempts == 1)
    delivery.take([at(2000, "critical", "second"), *calm(100)])
    assert (delivery.dropped, files(tmp_path)) == (37, 65)
    post.open.set()
    delivery.close()
    assert [steps for steps, _ in post.sent] == [[1000], [2000], *([step] for step in range(37, 100))]


def test_later_warnings_of_a_detector_are_one_message_at_the_end(tmp_path: Path) -> None:
    delivery = Delivery("x", post := Post(), tmp_path)
    delivery.take([at(1), at(2), at(3, state="cleared"), at(4)])
    until(lambda: delivery.sent == 2)
    assert files(tmp_path) == 2
    delivery.close()
    assert post.sent == [([1], "new"), ([3], "new"), ([2, 4], "held")]


def test_a_digest_goes_out_when_its_time_has_come(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LONGEST_REST", 0.01)
    monkeypatch.setattr("stabmon.sinks.restraint._QUIET", {"warning": 0.3})
    delivery = Delivery("x", post := Post(), tmp_path)
    delivery.take([at(1), at(2), at(3)])
    until(lambda: post.sent == [([1], "new"), ([2, 3], "held")])
    delivery.close()


def test_close_waits_no_longer_than_asked_and_leaves_the_rest_to_the_next_process(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    delivery = Delivery("x", Post(lambda attempt, _: NotNow("down")), tmp_path)
    delivery.take([at(1, "critical"), *calm(3)[1:], at(3), at(4)])
    delivery.close(patience=0.1)
    assert "x: 5 messages could not be sent before the end; the next run in the same folder" in caplog.text
    until(lambda: delivery._thread is not None and not delivery._thread.is_alive())
    other = Delivery("x", post := Post(), tmp_path)
    other.close()
    assert post.sent == [([1], "left_over"), ([1, 2, 3, 4], "left_over")]
    assert not tmp_path.exists()


def test_an_alert_under_way_at_the_end_stays_with_its_thread(tmp_path: Path) -> None:
    post = Post()
    post.open.clear()
    delivery = Delivery("x", post, tmp_path)
    delivery.take([at(1)])
    until(lambda: post.attempts == 1)
    delivery.close(patience=0.05)
    assert Spool(tmp_path).leftovers() == []
    post.open.set()
    until(lambda: files(tmp_path) == 0)
    assert (delivery.sent, post.sent) == (1, [([1], "new")])


def test_without_a_disk_alerts_are_sent_all_the_same_and_it_is_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    delivery = Delivery("x", post := Post(), tmp_path / "file")
    delivery.take(calm(2))
    delivery.close()
    assert [steps for steps, _ in post.sent] == [[0], [1]]
    assert [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING] == [
        "stabmon: x: alerts are not kept on disk (FileExistsError); if the process dies, some are lost"
    ]


def test_without_a_disk_nobody_is_promised_what_was_not_kept(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("")
    delivery = Delivery("x", Post(lambda attempt, _: NotNow("down")), tmp_path / "file")
    delivery.take([at(1, "critical")])
    delivery.close(patience=0.1)
    assert "could not be sent before the end; the next run in the same folder sends those that are kept" in caplog.text


def test_without_a_folder_nothing_is_kept() -> None:
    delivery = Delivery("x", post := Post(), None)
    delivery.take([at(1)])
    delivery.close()
    assert post.sent == [([1], "new")]


def test_where_no_thread_can_start_the_alert_is_left_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def start(self: threading.Thread) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    monkeypatch.setattr(threading.Thread, "start", start)
    delivery = Delivery("x", Post(), tmp_path)
    delivery.take([at(1, "critical")])
    delivery.close(patience=3600)
    assert [a.step for a, _ in Spool(tmp_path).leftovers()] == [1]
