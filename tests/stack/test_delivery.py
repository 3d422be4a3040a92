"""Alertmanager with the committed configuration and template, and what a stand-in for Slack gets of it: whether a
template can be used, only a delivery tells.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.sinks.slack_server import SlackServer
from tests.stack.servers import alertmanager, patiently, post

PAST = datetime(2020, 1, 1, tzinfo=UTC).isoformat()


@dataclass(frozen=True)
class Pager:
    address: str
    slack: SlackServer

    def send(self, *alerts: dict[str, Any]) -> None:
        post(f"{self.address}/api/v2/alerts", alerts)

    def attachment(self, *words: str) -> dict[str, Any]:
        """The first message with all these words."""

        def found() -> list[dict[str, Any]]:
            attachments = [message["attachments"][0] for message in self.slack.messages]
            return [one for one in attachments if all(word in json.dumps(one) for word in words)]

        patiently(found)
        return found()[0]


@contextmanager
def pager(folder: Path) -> Iterator[Pager]:
    with SlackServer() as slack, alertmanager(folder, slack.webhook) as address:
        yield Pager(address, slack)


def alert(name: str, severity: str = "critical", over: bool = False, **labels: str) -> dict[str, Any]:
    run = labels.get("run", "r1")
    return {
        "labels": {"alertname": name, "severity": severity, "component": "stabmon", "job": "stabmon", **labels},
        "annotations": {
            "summary": f"{run}: {name} {labels.get('detector', '')}".strip(),
            "description": f"What {name} says.",
            "runbook_url": "http://127.0.0.1:7466/runbook/nonfinite",
            "dashboard_url": f"http://127.0.0.1:3000/d/stabmon-run/stabmon-run?var-run={run}",
        },
        **({"startsAt": PAST, "endsAt": datetime.now(UTC).isoformat()} if over else {}),
    }


def test_a_critical_alert_arrives_with_its_words_and_links_and_then_its_end(tmp_path: Path) -> None:
    with pager(tmp_path) as sent:
        sent.send(alert("StabmonNonfinite", run="r1"))
        told = sent.attachment("critical")
        assert told["title"] == "critical: r1: StabmonNonfinite"
        assert told["text"] == "*critical* r1: StabmonNonfinite\nWhat StabmonNonfinite says."
        assert told["title_link"] == "http://127.0.0.1:3000/d/stabmon-run/stabmon-run?var-run=r1"
        assert [(action["text"], action["url"]) for action in told["actions"]] == [
            ("Dashboard", told["title_link"]),
            ("Runbook", "http://127.0.0.1:7466/runbook/nonfinite"),
        ]
        assert (told["color"], told["mrkdwn_in"]) == ("danger", ["text"])
        sent.send(alert("StabmonNonfinite", over=True, run="r1"))
        over = sent.attachment("Over, or the run has ended")
        assert over["title"] == "Over, or the run has ended: r1: StabmonNonfinite"
        assert over["text"] == "*over* r1: StabmonNonfinite"
        assert over["color"] == "good"


def test_a_run_that_is_named_like_a_call_to_everybody_calls_nobody(tmp_path: Path) -> None:
    with pager(tmp_path) as sent:
        sent.send(alert("StabmonNonfinite", run='<!channel> & "a"\\n'))
        told = sent.attachment("critical")
        shown = '&lt;!channel&gt; &amp; "a"\\n: StabmonNonfinite'
        assert told["title"] == f"critical: {shown}"
        assert told["text"].startswith(f"*critical* {shown}\n")


def test_warnings_of_all_runs_are_one_message_that_shows_five(tmp_path: Path) -> None:
    with pager(tmp_path) as sent:
        runs = [f"r{number:02d}" for number in range(60)]
        sent.send(*(alert("StabmonWarningAlerts", "warning", run=run, detector="spike") for run in runs))
        told = sent.attachment("warning")
        assert told["title"].endswith("(and 59 more)")
        assert told["text"].count("What StabmonWarningAlerts says.") == 5
        assert told["text"].endswith("\n\n55 more are not shown.")
        assert len(told["text"]) < 600
        assert len(sent.slack.messages) == 1


def test_what_is_over_is_a_line_below_what_is_not(tmp_path: Path) -> None:
    with pager(tmp_path) as sent:
        old, new = (alert("StabmonCriticalAlert", run="r1", detector=name) for name in ("exploded", "spike"))
        sent.send(old)
        sent.attachment("exploded")
        sent.send({**old, "endsAt": datetime.now(UTC).isoformat()}, new)
        told = sent.attachment("spike")
        assert told["title"] == "critical: r1: StabmonCriticalAlert spike"
        assert told["text"].split("\n") == [
            "*critical* r1: StabmonCriticalAlert spike",
            "What StabmonCriticalAlert says.",
            "*over* r1: StabmonCriticalAlert exploded",
        ]


def test_what_a_cause_explains_is_not_told_and_other_runs_are(tmp_path: Path) -> None:
    """The last message is of what is told after everything else was decided."""
    with pager(tmp_path) as sent:
        sent.send(
            alert("StabmonNonfinite", run="r1"),
            alert("StabmonLossNaN", run="r1"),
            alert("StabmonGradSpike", "warning", run="r1"),
            alert("StabmonGradSpike", "warning", run="r2"),
            alert("StabmonRunVanished", run="r3"),
            alert("StabmonRankMissing", "warning", run="r3"),
            alert("StabmonTargetDown", "warning", run="r3", instance="gpu-1:7466"),
            alert("StabmonOverheadHigh", "info", run="r4"),
        )
        sent.attachment("r2: StabmonGradSpike")
        sent.attachment("r3: StabmonRunVanished")
        sent.attachment("r1: StabmonNonfinite")
        told = json.dumps(sent.slack.messages)
        for silent in ("LossNaN", "r1: StabmonGradSpike", "RankMissing", "TargetDown", "OverheadHigh"):
            assert silent not in told


def test_the_end_of_a_run_that_vanished_is_not_told(tmp_path: Path) -> None:
    with pager(tmp_path) as sent:
        sent.send(alert("StabmonRunVanished", run="r1"))
        sent.attachment("r1: StabmonRunVanished")
        sent.send(alert("StabmonRunVanished", over=True, run="r1"), alert("StabmonNonfinite", run="r2"))
        sent.attachment("r2: StabmonNonfinite")
        sent.send(alert("StabmonNonfinite", over=True, run="r2"))
        sent.attachment("Over, or the run has ended: r2")
        assert not [m for m in sent.slack.messages if "ended: r1" in json.dumps(m)]
