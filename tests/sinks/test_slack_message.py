import re
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from stabmon.records import Alert, Severity
from stabmon.sinks.slack_message import compose
from tests.snapshots import RUN, alert


def now(step: int = 4, severity: Severity = "warning", state: str = "raised") -> Alert:
    return replace(alert(step, severity, state), time=time.time())


def texts(message: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """(block type, text) of everything that is shown."""
    for block in message["blocks"]:
        for element in block.get("elements", [block.get("text")]):
            yield block["type"], element["text"]


def test_evidence_that_is_not_finite_is_said_to_be_so() -> None:
    (evidence,) = [text for _, text in texts(compose([now()], RUN, None, "new")) if "Evidence" in text]
    assert evidence.splitlines()[1:] == ["• `loss` 3.5", "• `context_share` not finite"]


def huge(count: int, length: int) -> Alert:
    """Every text of it is too long, and made of characters that escaping lengthens."""
    text = "<&>" * (length // 3)
    return replace(
        now(),
        run=text[:128],
        site=text,
        action=text,
        cause=text,
        remedies=(text,) * count,
        evidence={f"{text} {i}": 1.0 for i in range(count)},
    )


@pytest.mark.parametrize(
    "alerts", [[huge(100, 6000)], [huge(1, 300)], [huge(5, 600)] * 64, [now()] * 1000], ids=["a", "b", "c", "d"]
)
def test_slacks_limits_hold_whatever_an_alert_says(alerts: list[Alert]) -> None:
    message = compose(alerts, replace(RUN, model="<" * 5000), "http://x/" + "y" * 480, "new")
    shown = list(texts(message))
    assert 2 <= len(message["blocks"]) <= 50
    assert all(1 <= len(text) <= (150 if kind == "header" else 3000) for kind, text in shown)
    assert sum(len(text) for _, text in shown) < 13_200
    for kind, text in shown:
        if kind != "header":  # plain text, in which nothing is special
            assert not re.search(r"&(?!amp;|lt;|gt;)", text)


def test_a_run_cannot_notify_a_channel_or_link_through_its_name() -> None:
    message = compose([replace(now(), run="<!channel> & <http://x|y>")], None, None, "new")
    assert "&lt;!channel&gt; &amp; &lt;http://x|y&gt;" in message["text"]
    assert all("<" not in text for kind, text in texts(message) if kind != "header")


def test_a_headline_that_the_header_cuts_is_whole_in_the_text() -> None:
    action = "is not learning: " + "very " * 40 + "long. Restart"
    message = compose([replace(now(), action=action)], None, None, "new")
    header, section = list(texts(message))[:2]
    assert len(header[1]) == 150
    assert header[1].endswith("…")
    assert section == ("section", f"*r1 {action}*")


def test_a_digest_is_a_line_each_and_names_how_many_are_left_out() -> None:
    alerts = [now(1), now(2, state="cleared"), now(3, "critical")]
    title, lines, note, _ = (text for _, text in texts(compose(alerts, RUN, None, "held")))
    assert title == "r1: 2 more alerts since step 1"
    assert lines.splitlines() == [
        "• step 1 :large_orange_circle: `stall` is not learning. Restart",
        "• step 2 :white_check_mark: `stall` is not learning. Restart",
        "• step 3 :red_circle: `stall` is not learning. Restart",
    ]
    assert note.startswith("Held back")
    shown = "\n".join(text for _, text in texts(compose([now(step) for step in range(50)], RUN, None, "held")))
    assert re.findall(r"step (\d+) :", shown) == [str(step) for step in range(30, 50)]
    assert "30 older ones are left out" in shown


@pytest.mark.parametrize(
    ("age", "why", "note"),
    [
        (0, "new", ""),
        (59, "new", ""),
        (3600, "new", "Slack could not be reached before"),
        (0, "left_over", "the process ended before Slack had this message"),
    ],
)
def test_a_late_message_says_so_and_when_it_happened(age: float, why: Any, note: str) -> None:
    happened = time.time() - age
    shown = str(compose([replace(now(), time=happened)], None, None, why))
    assert ("Sent late" in shown) == bool(note)
    assert note in shown
    assert (time.strftime("%H:%M:%S UTC", time.gmtime(happened)) in shown) == bool(note)


def test_the_runbook_is_linked_beside_the_live_page_without_its_token() -> None:
    message = compose([replace(now(), detector="context_stall")], None, "http://127.0.0.1:7466/?token=secret", "new")
    assert (
        "<http://127.0.0.1:7466/?token=secret|Open the live page> · "
        "<http://127.0.0.1:7466/runbook/context_stall|Runbook: context_stall>"
    ) in [text for _, text in texts(message)]


def test_a_detector_without_a_page_of_ours_has_no_link_to_one() -> None:
    message = compose([replace(now(), detector="one_of_yours")], None, "http://127.0.0.1:7466/?token=secret", "new")
    assert "<http://127.0.0.1:7466/?token=secret|Open the live page>" in [text for _, text in texts(message)]
