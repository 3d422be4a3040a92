"""What people say of alerts, over HTTP."""

import json
import os
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from stabmon.runlog import in_folder
from stabmon.server.app import create_app
from tests.server.recorded import Writing, alert

TOKEN = "open-sesame"


class Page:
    def __init__(self, folder: Path) -> None:
        app = create_app(lambda: b"", lambda: in_folder(folder), TOKEN)
        self._client = TestClient(app, base_url="http://127.0.0.1", headers={"authorization": f"Bearer {TOKEN}"})

    def say(self, alert: str = "context_stall:11", **body: Any) -> Any:
        response = self._client.post(f"/api/v1/alerts/{alert}/mark", json=body)
        return response.json() if response.status_code == 200 else (response.status_code, response.json()["detail"])

    def post(self, body: bytes, **headers: str) -> tuple[int, str]:
        response = self._client.post("/api/v1/alerts/context_stall:11/mark", content=body, headers=headers)
        return response.status_code, response.json()["detail"]

    def get(self, path: str) -> Any:
        return self._client.get(f"/api/v1/{path}").json()


@pytest.fixture
def writing(tmp_path: Path) -> Writing:
    made = Writing(tmp_path / "r1.stabmon")
    made.step(11, loss=3.1, alerts=[alert(11)])
    return made


@pytest.fixture
def page(writing: Writing, tmp_path: Path) -> Page:
    return Page(tmp_path)


def test_an_alert_that_is_acknowledged_stays_the_verdict_and_shows_who_saw_it(page: Page) -> None:
    (row,) = page.say(kind="acknowledge", note="<b>on it</b> 🙂")["alerts"]
    assert (row["id"], row["open"], row["mark"]["kind"], row["mark"]["note"]) == (
        "context_stall:11",
        True,
        "acknowledged",
        "<b>on it</b> 🙂",
    )
    assert page.get("run")["verdict"]["title"].startswith("No data for")  # its clock says 1970
    assert page.get("run")["verdict"]["level"] == "critical"
    assert page.get("run")["marks_version"] == 1


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"kind": "false_alarm"}, "An alert of context_stall is called a false alarm."),
        ({"kind": "mute", "steps": 30}, "An alert of context_stall is muted until step 41."),
    ],
)
def test_what_is_muted_or_false_is_no_trouble_but_said(page: Page, said: dict[str, Any], words: str) -> None:
    page.say(**said)
    verdict = page.get("run")["verdict"]
    assert verdict["level"] == "silent"
    assert words in verdict["text"]
    assert page.get("runs")["runs"][0]["open_alerts"] == 0


def test_a_mute_ends_with_its_step_and_what_is_worse_than_a_false_alarm_is_trouble_again(
    page: Page, writing: Writing
) -> None:
    page.say(kind="mute", steps=5)
    (row,) = [row for row in page.get("detectors")["detectors"] if row["name"] == "context_stall"]
    assert row["state"] == "quiet" or row["muted_until"] == 16
    assert page.get("alerts")["alerts"][0]["mark"]["until"] == 16
    writing.step(6)
    later = Page(writing.path.parent)
    assert later.get("alerts")["alerts"][0]["mark"] is None
    assert later.get("runs")["runs"][0]["open_alerts"] == 1


def test_a_mark_can_be_taken_back(page: Page) -> None:
    page.say(kind="false_alarm")
    (row,) = page.say(kind="clear")["alerts"]
    assert row["mark"] is None
    assert page.get("run")["verdict"]["level"] == "critical"


def test_another_server_of_the_same_folder_shows_it(page: Page, tmp_path: Path) -> None:
    page.say(kind="acknowledge")
    assert Page(tmp_path).get("alerts")["alerts"][0]["mark"]["kind"] == "acknowledged"


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"{", b'{"kind": "delete"}', b'{"kind": "mute", "steps": 0}', b'{"kind": "mute", "more": 1}']
)
def test_a_body_that_is_none_is_refused_with_its_form(page: Page, body: bytes) -> None:
    status, detail = page.post(body, **{"content-type": "application/json"})
    assert status == 422
    assert 'the body is JSON such as {"kind": "mute", "steps": 100}' in detail


def test_another_site_can_say_nothing(page: Page, tmp_path: Path) -> None:
    body = json.dumps({"kind": "false_alarm"}).encode()
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
        assert page.post(body, **{"content-type": kind})[0] == 415
    client = TestClient(create_app(lambda: b"", lambda: in_folder(tmp_path), TOKEN), base_url="http://127.0.0.1")
    assert client.post("/api/v1/alerts/context_stall:11/mark", json={"kind": "false_alarm"}).status_code == 401
    assert page.get("alerts")["alerts"][0]["mark"] is None


def test_a_body_without_end_is_not_read(page: Page) -> None:
    assert page.post(b" " * 9000, **{"content-type": "application/json"})[0] == 413


def test_an_alert_that_there_is_not_is_named(page: Page) -> None:
    assert page.say("<img>/..:3", kind="acknowledge") == (
        404,
        "this run has no alert '<img>/..:3'; /api/v1/alerts has their ids",
    )


@pytest.mark.skipif(os.getuid() == 0, reason="root may write everywhere")
def test_a_folder_that_is_read_only_is_said(page: Page, tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    try:
        status, detail = page.say(kind="acknowledge")
    finally:
        tmp_path.chmod(0o700)
    assert status == 409
    assert "serve its folder where it is writable" in detail


def test_a_run_log_that_cannot_be_written_is_said_without_its_folder(
    page: Page, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read_only(path: Path, mark: object) -> None:
        raise PermissionError(f"{path} cannot be written here")

    monkeypatch.setattr("stabmon.server.marking.add_mark", read_only)
    assert page.say(kind="acknowledge") == (409, "r1.stabmon cannot be written here")


def test_a_run_log_that_is_locked_all_the_time_is_said(
    page: Page, writing: Writing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stabmon.server.marking._TRIES", 2)
    with sqlite3.connect(writing.path, isolation_level=None) as other:
        other.execute("BEGIN IMMEDIATE")
        status, detail = page.say(kind="acknowledge")
        other.execute("ROLLBACK")
    other.close()
    assert (status, "try again in a moment" in detail) == (503, True)
