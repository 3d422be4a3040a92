"""A Monitor with everything that can hear of an alert switched on."""

from __future__ import annotations

import json
import logging
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stabmon import Monitor
from stabmon.records import EVALUATION, Alert, Event, Finding, Snapshot
from stabmon.runlog import read
from stabmon.settings import Settings
from tests.sinks.slack_server import CANARY, SlackServer, until
from tests.test_monitor import make, train


class AtStep3:
    """A detector that is sure of itself from step 3 on."""

    name = "always"
    needs = ("loss",)

    def score(self, snapshot: Snapshot) -> Any:
        return np.full(1, 2.0 if snapshot.step >= 3 else 0.0, dtype=np.float32)

    def explain(self, site: int) -> Finding:
        return Finding("critical", "burns. Put it out", "fire", ("water",), {"loss": 9.0}, since=2)


class Kept:
    """Something to notify."""

    def __init__(self) -> None:
        self.alerts: list[Alert] = []

    def send(self, alert: Alert) -> None:
        self.alerts.append(alert)


def get(url: str) -> str:
    with urllib.request.urlopen(url) as answer:
        return str(answer.read().decode())


def test_an_alert_reaches_slack_with_a_link_to_the_page_and_whoever_else_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    model, optimizer = make()
    kept = Kept()
    with (
        SlackServer() as slack,
        Monitor(
            model, optimizer, folder=tmp_path, run="fire", port=0, detectors=[AtStep3()], slack=slack.webhook,
            notify=kept, token="page-token",
        ) as monitor,
    ):  # fmt: skip
        train(model, optimizer, monitor, steps=4)
        until(lambda: slack.messages and kept.alerts)
        message = json.dumps(slack.messages)
        assert "fire burns. Put it out" in message
        assert f"{monitor.url}/?token=page-token" in message
        assert [alert.step for alert in kept.alerts] == [3]
        page = get(f"{monitor.page_url}")
        metrics = get(f"{monitor.url}/metrics")
    assert "<html" in page
    for part in ("slack", "notify_kept", "norms", "always", "run_log", "console"):
        assert f'stabmon_part_failures_total{{part="{part}",rank="0",run="fire"}} 0.0' in metrics
    assert CANARY not in caplog.text + page + metrics
    assert CANARY.encode() not in b"".join(file.read_bytes() for file in tmp_path.rglob("*") if file.is_file())


def test_the_page_refuses_a_wrong_token(tmp_path: Path) -> None:
    model, optimizer = make()
    with Monitor(model, optimizer, folder=tmp_path, run="closed", port=0) as monitor:
        train(model, optimizer, monitor, steps=1)
        with pytest.raises(urllib.error.HTTPError, match="401"):
            get(f"{monitor.url}/?token=guess")
        assert json.loads(get(f"{monitor.page_url}".replace("/?", "/api/v1/runs?")))


def test_a_webhook_that_is_none_is_refused_before_the_first_step_and_not_shown(tmp_path: Path) -> None:
    model, optimizer = make()
    with pytest.raises(ValueError, match="slack") as refused:
        Monitor(model, optimizer, folder=tmp_path, serve=False, slack="hxxps://hooks/SECRET")
    assert "SECRET" not in str(refused.value)
    assert not any(m._forward_pre_hooks for m in model.modules())


def test_what_cannot_be_told_is_refused(tmp_path: Path) -> None:
    model, optimizer = make()
    with pytest.raises(ValueError, match=r"notify: a str has no method send\(alert\)"):
        Monitor(model, optimizer, folder=tmp_path, serve=False, notify="me")


def test_secrets_are_in_no_dump_of_the_settings_and_in_no_refusal() -> None:
    settings = Settings.of(slack="https://hooks.slack.com/services/SECRET", token="SECRET-TOKEN")
    assert "SECRET" not in repr(settings) + str(settings) + settings.model_dump_json(exclude={"notify"})
    with pytest.raises(ValueError, match="token") as refused:
        Settings.of(token="SECRET")
    assert "SECRET" not in str(refused.value)


def test_the_evaluation_that_ends_a_run_is_kept(tmp_path: Path) -> None:
    model, optimizer = make()
    with Monitor(model, optimizer, folder=tmp_path, run="end", serve=False) as monitor:
        train(model, optimizer, monitor, steps=2)
        monitor.evaluated(1.5)
        path = monitor.run_log
    assert path is not None
    events: list[Event] = [event for _, found in read(path).feeds() for event in found]
    ended = [event for event in events if event.kind == EVALUATION]
    assert [(event.step, event.detail["eval_loss"]) for event in ended] == [(2, 1.5)]
