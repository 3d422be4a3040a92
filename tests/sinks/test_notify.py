import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from stabmon.records import Alert, Severity
from stabmon.sinks.notify import Notify
from stabmon.sinks.spool import Spool
from tests.sinks.slack_server import until
from tests.snapshots import alert, snapshot


def now(step: int = 4, severity: Severity = "critical", detector: str = "stall", state: str = "raised") -> Alert:
    return replace(alert(step, severity, state, detector), time=time.time())


class Phone:
    """A target that a user would write."""

    def __init__(self, *errors: Exception) -> None:
        self.alerts: list[Alert] = []
        self.threads: list[int] = []
        self._errors = list(errors)

    def send(self, alert: Alert) -> None:
        self.threads.append(threading.get_ident())
        if self._errors:
            raise self._errors.pop(0)
        self.alerts.append(alert)


def test_a_target_gets_the_alert_itself_in_another_thread(tmp_path: Path) -> None:
    notify = Notify(phone := Phone(), tmp_path)
    given = [now(4), now(4, "info", "other"), now(5, state="cleared")]
    notify.emit(snapshot(4), given, [])
    until(lambda: len(phone.alerts) == 2)
    assert phone.alerts == [given[0], given[2]]
    assert threading.get_ident() not in phone.threads
    notify.close("finished")
    assert list(tmp_path.iterdir()) == []


def test_a_target_that_raises_is_logged_once_per_kind_counted_and_asked_again_for_the_next_alert(
    caplog: pytest.LogCaptureFixture,
) -> None:
    notify = Notify(phone := Phone(KeyError("a"), KeyError("b"), OSError("c")))
    notify.emit(snapshot(4), [now(step, detector=f"d{step}") for step in range(4)], [])
    notify.close("finished")
    assert (notify.delivery.failed, [a.step for a in phone.alerts]) == (3, [3])
    assert [r.getMessage() for r in caplog.records] == [
        "stabmon: notify_phone: raised KeyError",
        "stabmon: notify_phone: raised OSError",
    ]


def test_a_digest_is_its_newest_alert_with_the_number_of_the_others() -> None:
    notify = Notify(phone := Phone())
    notify.emit(snapshot(4), [now(step, "warning") for step in (1, 2, 3, 4)], [])
    notify.close("finished")
    assert [(a.step, a.action) for a in phone.alerts] == [
        (1, "is not learning. Restart"),
        (4, "is not learning. Restart (and 2 more since step 2)"),
    ]


def test_what_was_left_is_told_by_the_next_process_as_late(tmp_path: Path) -> None:
    Spool(tmp_path / "undelivered-notify_phone").put(now(7)).leave()
    Notify(phone := Phone(), tmp_path).close("finished")
    assert phone.alerts[0].headline == "r1 is not learning. Restart (sent late: the process ended before it could)"


class Pager(Phone):
    name = "pager"
    least = "critical"


def test_a_target_may_have_a_name_and_a_least_severity_of_its_own() -> None:
    notify = Notify(pager := Pager())
    notify.emit(snapshot(4), [now(1, "warning"), now(2, "critical", "other")], [])
    notify.close("finished")
    assert (notify.name, [a.step for a in pager.alerts]) == ("pager", [2])


@pytest.mark.parametrize("target", ["ntfy://secret-topic", print, None])
def test_what_has_no_send_is_refused_without_showing_it(target: object) -> None:
    with pytest.raises(ValueError, match=r"notify: a \w+ has no method send\(alert\); pass an object") as raised:
        Notify(target)  # type: ignore[arg-type]
    assert "secret" not in str(raised.value)
