import logging
import os
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from stabmon.records import Alert, Severity
from stabmon.sinks import slack as module
from stabmon.sinks.delivery import NotNow, Refused
from stabmon.sinks.slack import Slack, resend, spool_of
from tests.sinks.slack_server import CANARY, Answer, SlackServer, until
from tests.snapshots import RUN, alert, snapshot

ROOT = Path(__file__).parent.parent.parent
REDIRECT = Answer(302, "", {"Location": "/login"})


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)


@pytest.fixture
def server() -> Iterator[SlackServer]:
    with SlackServer() as running:
        yield running


def now(step: int = 4, severity: Severity = "critical", state: str = "raised", detector: str = "stall") -> Alert:
    return replace(alert(step, severity, state, detector), time=time.time())


def spooled(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.json"))


def test_the_message_is_there_within_two_seconds_says_what_to_do_first_and_leaves_nothing_behind(
    server: SlackServer, tmp_path: Path
) -> None:
    slack = Slack(server.webhook, RUN, spool_of(tmp_path), lambda: "http://127.0.0.1:7466/?token=t")
    raised = time.monotonic()
    slack.emit(snapshot(4), [now()], [])
    until(lambda: server.messages)
    assert server.arrivals[0] - raised < 2
    (message,) = server.messages
    assert message["text"] == ":red_circle: r1 is not learning. Restart"
    texts = [block["text"]["text"] for block in message["blocks"] if "text" in block]
    assert texts == [
        ":red_circle: r1 is not learning. Restart",
        "*critical* · `stall` · run *r1* · step 4, since step 2 · layer 1 (`h.1.ln`)",
        "*Evidence*\n• `loss` 3.5\n• `context_share` not finite",
        "*Cause*\n100% certain",
        "*Ruled out*\nnothing to learn (gap 0.5)",
        "*What to do*\n1. cut the learning rate\n2. warm up",
        "<http://127.0.0.1:7466/?token=t|Open the live page>",
    ]
    assert message["blocks"][-1]["elements"][0]["text"] == "stabmon 0.1.0 · Tiny · torch"
    slack.close("finished")
    assert list(tmp_path.iterdir()) == []


def test_info_is_not_sent_and_the_end_of_what_was_sent_is(server: SlackServer, tmp_path: Path) -> None:
    slack = Slack(server.webhook, RUN, spool_of(tmp_path))
    slack.emit(snapshot(4), [now(4, "info", detector="blowup"), now(4, "warning")], [])
    slack.emit(snapshot(5), [now(5, "info", "cleared", "blowup"), now(5, "warning", "cleared")], [])
    slack.close("finished")
    assert [m["text"][:20] for m in server.messages] == [":large_orange_circle", ":white_check_mark: r"]
    assert "*resolved* · `stall`" in server.messages[1]["blocks"][1]["text"]["text"]


def test_a_link_that_cannot_be_made_is_left_out(server: SlackServer) -> None:
    slack = Slack(server.webhook, RUN, None, lambda: str(1 / 0))
    slack.emit(snapshot(4), [now()], [])
    slack.close("finished")
    assert len(server.messages) == 1
    assert "live page" not in str(server.messages)


@pytest.mark.parametrize("first", [Answer(429, "rate_limited", {"Retry-After": "0"}), Answer(500, "oops"), Answer(503)])
def test_slack_is_asked_again_when_it_is_busy_or_broken(server: SlackServer, first: Answer) -> None:
    server.answers.append(first)
    slack = Slack(server.webhook, RUN, None)
    slack.emit(snapshot(4), [now()], [])
    until(lambda: slack.delivery.sent == 1)
    assert (len(server.arrivals), len(server.messages)) == (2, 1)
    slack.close("finished")


def test_when_slack_refuses_the_blocks_it_gets_the_text_alone(server: SlackServer) -> None:
    server.answers.append(Answer(400, "invalid_blocks"))
    slack = Slack(server.webhook, RUN, None)
    slack.emit(snapshot(4), [now()], [])
    slack.close("finished")
    assert server.messages == [{"text": ":red_circle: r1 is not learning. Restart"}]


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (Answer(404, "no_service"), r"refused a message \(404 no_service\); check the webhook"),
        (Answer(403, "<b>nginx</b>"), r"refused a message \(403 and not in Slack's words\)"),
        (REDIRECT, r"refused a message \(200 and not in Slack's words\)"),
        (Answer(body="thank you"), r"refused a message \(200 and not in Slack's words\)"),
    ],
)
def test_a_refusal_is_logged_once_and_the_alert_kept(
    server: SlackServer, tmp_path: Path, caplog: pytest.LogCaptureFixture, answer: Answer, words: str
) -> None:
    server.answers += [answer, answer]
    slack = Slack(server.webhook, RUN, spool_of(tmp_path))
    slack.emit(snapshot(4), [now(), now(detector="nonfinite")], [])
    slack.close("finished")
    assert (slack.delivery.failed, server.messages, len(spooled(tmp_path))) == (2, [], 2)
    (record,) = caplog.records
    with pytest.raises(AssertionError, match=words):
        raise AssertionError(record.getMessage())


def test_what_a_killed_process_could_not_send_the_next_run_in_the_folder_sends_as_late(
    server: SlackServer, tmp_path: Path
) -> None:
    server.hold.set()
    code = (
        "import os, sys, time; from dataclasses import replace; from pathlib import Path\n"
        "from stabmon.sinks.slack import Slack, spool_of; from tests.snapshots import RUN, alert, snapshot\n"
        "slack = Slack(sys.argv[1], replace(RUN, name='killed'), spool_of(Path(sys.argv[2])), lambda: 'http://gone')\n"
        "alerts = [replace(alert(9, 'critical'), run='killed', time=time.time())]\n"
        "slack.emit(snapshot(9), alerts, []); os._exit(1)\n"
    )
    died = subprocess.run([sys.executable, "-c", code, server.webhook, str(tmp_path)], cwd=ROOT, check=False)
    assert (died.returncode, server.messages, len(spooled(tmp_path))) == (1, [], 1)
    assert CANARY not in spooled(tmp_path)[0].read_text()
    server.hold.clear()
    slack = Slack(server.webhook, RUN, spool_of(tmp_path), lambda: "http://mine")
    until(lambda: slack.delivery.sent == 1)
    slack.close("finished")
    (message,) = server.messages
    assert message["text"] == ":red_circle: killed is not learning. Restart"
    assert "the process ended before Slack had this message" in str(message)
    assert "Tiny" not in str(message)
    assert "http://" not in str(message)
    assert spooled(tmp_path) == []


def test_resend_sends_leftovers_once_and_counts_alerts(server: SlackServer, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        nobody = f"http://127.0.0.1:{listener.getsockname()[1]}/services/{CANARY}"
    slack = Slack(nobody, RUN, spool_of(tmp_path))
    slack.emit(snapshot(4), [now(1), now(2, "warning", detector="a"), now(3, "warning", detector="b")], [])
    slack.delivery.close(patience=0.1)
    until(lambda: slack.delivery._thread is not None and not slack.delivery._thread.is_alive())
    assert resend(tmp_path, nobody, patience=0.1) == 0
    assert [resend(tmp_path, server.webhook) for _ in range(2)] == [3, 0]
    assert [m["text"] for m in server.messages] == [
        ":red_circle: r1 is not learning. Restart",
        "r1: 2 alerts since step 2",
    ]
    assert spooled(tmp_path) == []


def test_resend_leaves_a_living_run_its_alerts(server: SlackServer, tmp_path: Path) -> None:
    server.hold.set()
    slack = Slack(server.webhook, RUN, spool_of(tmp_path))
    slack.emit(snapshot(4), [now()], [])
    until(lambda: server.arrivals)
    assert resend(tmp_path, server.webhook) == 0
    assert len(server.arrivals) == 1
    slack.delivery.close(patience=0)


@pytest.mark.parametrize(
    ("webhook", "words"),
    [
        ("", "the webhook is no web address"),
        (CANARY, "the webhook is no web address"),
        (f"hooks.slack.com/services/{CANARY}", "the webhook is no web address"),
        (f"https:///{CANARY}", "the webhook is no web address"),
        (f"ftp://hooks.slack.com/{CANARY}", "the webhook is no web address"),
        (f"https://{CANARY.replace('/', '')}@/", "the webhook is no web address"),
        (f"https://hooks.slack.com:{CANARY}", "the webhook is no web address"),
        (f"https://[{CANARY}", "the webhook is no web address"),
        (f"https://hooks.slack.com/{CANARY}\n", "the webhook is no web address"),
        (f"https://hooks.slack.com/{CANARY} x", "the webhook at https://hooks.slack.com has a space in it"),
        (f"http://hooks.slack.com/{CANARY}", "the webhook at http://hooks.slack.com is not encrypted"),
        (f"http://10.0.0.1/{CANARY}", "the webhook at http://10.0.0.1 is not encrypted"),
        ("https://hooks.slack.com/", "the webhook at https://hooks.slack.com has nothing after the host"),
    ],
)
def test_a_wrong_webhook_is_refused_with_advice_and_without_its_secret(webhook: str, words: str) -> None:
    with pytest.raises(ValueError, match="slack: ") as raised:
        Slack(webhook, RUN, None)
    shown = "".join(traceback.format_exception(raised.value))
    assert str(raised.value) == f"slack: {words}; {module._ADVICE}" or words.endswith("encrypted")
    assert words in str(raised.value)
    assert "Canary" not in shown
    assert raised.value.__context__ is None


@pytest.mark.parametrize(
    "webhook",
    [
        "https://hooks.slack.com/services/T/B/x",
        "https://mattermost.example:8065/hooks/x",
        "http://localhost:1/x",
        "http://127.0.0.2/x",
        "http://[::1]:80/x",
    ],
)
def test_a_webhook_is_https_or_on_this_machine(webhook: str) -> None:
    Slack(webhook, RUN, None).close("finished")


@pytest.mark.parametrize(
    "case", ["ok", "invalid_blocks", "no_service", "429", "500", "redirect", "timeout", "refused", "cut off"]
)
def test_the_webhook_is_in_no_log_output_error_or_file_whatever_happens(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    case: str,
) -> None:
    monkeypatch.setattr(module, "_TIMEOUT_SECONDS", 0.2)
    for name in ("slack_sdk", "slack_sdk.webhook", "slack_sdk.webhook.client", "urllib3", "http.client"):
        caplog.set_level(logging.DEBUG, name)
    caplog.set_level(logging.DEBUG)
    answers = {
        "invalid_blocks": Answer(400, "invalid_blocks"),
        "no_service": Answer(404, "no_service"),
        "429": Answer(429, "rate_limited", {"Retry-After": "0"}),
        "500": Answer(500, "oops"),
        "redirect": Answer(302, "", {"Location": f"/{CANARY}"}),
        "cut off": Answer(200, "ok", {"Content-Length": "100"}),
    }
    with SlackServer(*20 * [answers.get(case, Answer())]) as server:
        if case == "timeout":
            server.hold.set()
        webhook = server.webhook
        if case == "refused":
            with socket.create_server(("127.0.0.1", 0)) as listener:
                webhook = f"http://127.0.0.1:{listener.getsockname()[1]}/services/{CANARY}"
        slack = Slack(webhook, RUN, spool_of(tmp_path))
        slack.emit(snapshot(4), [now()], [])
        until(lambda: slack.delivery.sent or any(r.name == "stabmon" for r in caplog.records))
        slack.delivery.close(patience=0.05)
        errors = "".join(_errors_of(slack, case))
    files = "".join(path.read_text() for path in spooled(tmp_path))
    seen = [caplog.text, *capfd.readouterr(), errors, files, repr(slack), str(vars(slack)), str(vars(slack.delivery))]
    assert [text for text in seen if "Canary" in text or "SECRET" in text] == []
    assert (case == "ok") == (files == "")
    assert bool(caplog.records) == (case != "ok")


def _errors_of(slack: Slack, case: str) -> Iterator[str]:
    """The traceback of an attempt, with all that is chained to it, hidden or not."""
    try:
        slack._webhook._client.retry_handlers = []
        slack._webhook.post({"text": "again"})
    except (NotNow, Refused) as error:
        chained: BaseException | None = error
        while chained:
            yield "".join(traceback.format_exception(chained)) + repr(chained)
            chained = chained.__cause__ or chained.__context__


def test_importing_it_does_not_import_slacks_client() -> None:
    code = "import sys, stabmon.sinks.slack; print('slack_sdk' in sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert out == "False\n"
