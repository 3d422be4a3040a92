"""Prometheus finds the runs: a file beside each run log, and all of a folder at /sd."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from stabmon.runlog import in_folder
from stabmon.server import discovery
from stabmon.server.app import create_app
from stabmon.server.discovery import write_target
from stabmon.server.thread import Server
from tests.server.recorded import Writing


def found(folder: Path) -> list[str]:
    app = create_app(lambda: b"", lambda: in_folder(folder), "open-sesame")
    answer = TestClient(app, base_url="http://127.0.0.1", client=("127.0.0.1", 5000)).get("/sd")
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/json")
    return [address for target in answer.json() for address in target["targets"]]


def running(folder: Path, name: str, start: float | None = None) -> Writing:
    writing = Writing(folder / f"{name}.stabmon", name, start=time.time() if start is None else start)
    writing.step(2)
    return writing


def test_the_file_is_what_file_sd_reads(tmp_path: Path) -> None:
    path = write_target(tmp_path, "r1", 3, "https://trainer-0:7469")
    assert path.name == "r1.3.target.json"
    assert json.loads(path.read_text(encoding="utf-8")) == [
        {
            "targets": ["trainer-0:7469"],
            "labels": {"__scheme__": "https", "__meta_stabmon_run": "r1", "__meta_stabmon_rank": "3"},
        }
    ]
    assert list(tmp_path.iterdir()) == [path]


def test_every_rank_of_every_run_under_way_is_a_target(tmp_path: Path) -> None:
    running(tmp_path, "r1")
    running(tmp_path / "other" / "stabmon", "r2")
    write_target(tmp_path, "r1", 0, "http://a:1")
    write_target(tmp_path, "r1", 11, "http://a:2")
    write_target(tmp_path / "other" / "stabmon", "r2", 0, "http://[::1]:3")
    assert sorted(found(tmp_path)) == ["[::1]:3", "a:1", "a:2"]


def test_a_run_that_has_ended_or_not_had_a_step_for_an_hour_is_none(tmp_path: Path) -> None:
    running(tmp_path, "done").close("finished")
    running(tmp_path, "killed", start=time.time() - 3700)
    running(tmp_path, "hangs", start=time.time() - 3500)
    for name in ("done", "killed", "hangs"):
        write_target(tmp_path, name, 0, f"http://{name}:1")
    assert found(tmp_path) == ["hangs:1"]


def test_a_run_whose_name_begins_like_anothers_is_not_taken_for_it(tmp_path: Path) -> None:
    running(tmp_path, "a")
    write_target(tmp_path, "a.0", 0, "http://other:1")
    write_target(tmp_path, "a", 0, "http://mine:1")
    assert found(tmp_path) == ["mine:1"]


def test_without_a_run_the_answer_is_an_empty_list(tmp_path: Path) -> None:
    (tmp_path / "broken.stabmon").write_text("x", encoding="utf-8")
    (tmp_path / "broken.0.target.json").write_text("{", encoding="utf-8")
    assert found(tmp_path) == []


def test_a_broken_file_costs_the_others_nothing(tmp_path: Path) -> None:
    running(tmp_path, "r1")
    (tmp_path / "r1.0.target.json").write_text("{", encoding="utf-8")
    write_target(tmp_path, "r1", 1, "http://a:1")
    assert found(tmp_path) == ["a:1"]


def test_a_server_is_announced_until_it_stops(tmp_path: Path) -> None:
    server = Server(lambda: b"", port=0)
    server.announce(tmp_path, "r1")
    (path,) = tmp_path.iterdir()
    assert json.loads(path.read_text(encoding="utf-8"))[0]["targets"] == [f"127.0.0.1:{server.port}"]
    server.stop()
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_costs_a_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    server = Server(lambda: b"", port=0)
    try:
        server.announce(tmp_path / "no", "r1")
        assert "cannot be found by a file in" in caplog.text
    finally:
        server.stop()


def test_half_a_file_is_never_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(source: Path, target: Path) -> None:
        raise OSError("full")

    monkeypatch.setattr(discovery.os, "replace", fail)
    with pytest.raises(OSError, match="full"):
        write_target(tmp_path, "r1", 0, "http://a:1")
    assert list(tmp_path.iterdir()) == []
