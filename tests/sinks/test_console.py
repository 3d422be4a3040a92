import logging
import subprocess
import sys
from pathlib import Path

import pytest

from stabmon.records import Severity
from stabmon.sinks.console import Console
from tests.snapshots import alert, snapshot

ROOT = Path(__file__).parent.parent.parent


@pytest.mark.parametrize(
    ("severity", "level"), [("info", logging.INFO), ("warning", logging.WARNING), ("critical", logging.CRITICAL)]
)
def test_a_raised_alert_is_logged_whole_at_its_level(
    caplog: pytest.LogCaptureFixture, severity: Severity, level: int
) -> None:
    caplog.set_level(logging.DEBUG, logger="stabmon")
    Console().emit(snapshot(4), [alert(4, severity)], [])
    (record,) = caplog.records
    assert (record.name, record.levelno) == ("stabmon", level)
    assert record.getMessage() == alert(4, severity).message
    assert record.getMessage().count("\n") == 6


@pytest.mark.parametrize(
    ("severity", "level"), [("info", logging.INFO), ("warning", logging.WARNING), ("critical", logging.WARNING)]
)
def test_a_cleared_alert_is_one_line_that_who_saw_it_raised_sees(
    caplog: pytest.LogCaptureFixture, severity: Severity, level: int
) -> None:
    caplog.set_level(logging.DEBUG, logger="stabmon")
    Console().emit(snapshot(9), [alert(9, severity, state="cleared")], [])
    (record,) = caplog.records
    assert (record.levelno, record.getMessage()) == (level, f"step 9: {alert(9, severity, state='cleared').headline}")


def stderr_of(set_up: str) -> str:
    code = (
        f"import logging; {set_up}\n"
        "from stabmon.sinks.console import Console; from tests.snapshots import alert, snapshot\n"
        "Console().emit(snapshot(4), [alert(4)], [])\n"
        "assert not logging.getLogger('stabmon').handlers"
    )
    return subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, text=True).stderr


@pytest.mark.parametrize("set_up", ["", "logging.basicConfig()", "logging.basicConfig(level='DEBUG')"])
def test_a_warning_is_on_stderr_once_whatever_the_user_configured(set_up: str) -> None:
    assert stderr_of(set_up).count(alert(4).message) == 1
