"""How a watched training ends, and what whoever scrapes it sees of that."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.request import urlopen

import pytest
import torch
from fastapi import FastAPI
from fastapi.testclient import TestClient
from torch import nn

from stabmon import Monitor
from stabmon.runlog import read
from stabmon.server.scrapes import Scrapes
from stabmon.server.thread import Server
from stabmon.settings import Settings
from stabmon.summary import Summary

ROOT = Path(__file__).parent.parent


def made(folder: Path, **settings: Any) -> Monitor:
    model = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return Monitor(model, optimizer, folder=folder, **{"port": 0, "log_to": "none", **settings})


def state_after(folder: Path, ending: Callable[[], None]) -> str:
    """Of a run that a loop left like that."""
    with suppress(BaseException), made(folder, run="r1") as monitor:
        monitor.step(1.0)
        ending()
    return read(folder / "r1.stabmon").state


@contextmanager
def exits_on_sigterm() -> Iterator[None]:
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def fail() -> None:
    raise RuntimeError("mine")


@pytest.mark.parametrize(
    ("ending", "state"),
    [
        (lambda: None, "finished"),
        (fail, "failed"),
        (lambda: sys.exit(3), "failed"),
        (lambda: sys.exit(0), "stopped"),
        (lambda: os.kill(os.getpid(), signal.SIGINT), "stopped"),
        (lambda: os.kill(os.getpid(), signal.SIGTERM), "preempted"),
    ],
)
def test_the_way_a_training_ends_is_its_state(tmp_path: Path, ending: Callable[[], None], state: str) -> None:
    with exits_on_sigterm():
        assert state_after(tmp_path, ending) == state


class Scraper:
    """Asks again and again, as long as there is an answer."""

    def __init__(self, url: str) -> None:
        self.texts: list[str] = []
        self._url = f"{url}/metrics"
        self._thread = Thread(target=self._scrape, daemon=True)
        self._thread.start()
        while not self.texts:
            time.sleep(0.01)

    def _scrape(self) -> None:
        with suppress(OSError):
            while True:
                with urlopen(self._url) as answer:
                    self.texts.append(answer.read().decode())
                time.sleep(0.02)

    def finals(self, state: str) -> int:
        """How often it saw that state."""
        self._thread.join(30)
        return sum(f'state="{state}"}} 1.0' in text for text in self.texts)


def test_who_scrapes_sees_the_final_state_twice_and_then_the_run_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("STABMON_LINGER_SECONDS")
    monitor = made(tmp_path)
    assert monitor.url is not None
    scraper = Scraper(monitor.url)
    monitor.step(1.0)
    began = time.monotonic()
    monitor.close("finished")
    assert time.monotonic() - began < 30
    assert scraper.finals("finished") >= 2


@pytest.mark.parametrize(
    ("state", "seconds", "waits"),
    [
        ("finished", 600, (600,)),
        ("failed", None, (None,)),
        ("stopped", 600, None),
        ("preempted", 600, (None, 1, 20)),
        ("preempted", 0, None),
    ],
)
def test_a_run_that_was_stopped_waits_for_nobody_and_a_preempted_one_for_one_scrape(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: Any, seconds: float | None, waits: Any
) -> None:
    monkeypatch.delenv("STABMON_LINGER_SECONDS")
    waited: list[Any] = []
    monkeypatch.setattr(Scrapes, "outlast", lambda self, *how: waited.append(how))
    made(tmp_path, linger_seconds=seconds).close(state)
    assert waited == ([] if waits is None else [waits])


def test_ctrl_c_ends_the_wait_and_the_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*how: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Server, "linger", interrupted)
    monitor = made(tmp_path)
    port = int(str(monitor.url).rpartition(":")[2])
    with pytest.raises(KeyboardInterrupt):
        monitor.close()
    socket.create_server(("127.0.0.1", port)).close()


def test_two_trainings_on_one_machine_have_a_port_each(tmp_path: Path) -> None:
    with made(tmp_path, port=None) as one, made(tmp_path, port=None) as other:
        assert one.url != other.url
        for monitor in (one, other):
            with urlopen(f"{monitor.url}/metrics") as answer:
                assert f'run="{monitor.run_log.stem}"' in answer.read().decode()  # type: ignore[union-attr]


def test_a_run_under_way_is_a_target_and_an_ended_one_is_not(tmp_path: Path) -> None:
    with made(tmp_path, run="r1") as monitor:
        monitor.step(1.0)
        (target,) = json.loads((tmp_path / "r1.0.target.json").read_text(encoding="utf-8"))
        assert f"http://{target['targets'][0]}" == monitor.url
        with urlopen(f"{monitor.url}/sd") as answer:
            assert json.load(answer) == [target]
    assert [p.name for p in tmp_path.iterdir()] == ["r1.stabmon"]


def test_a_textfile_and_the_users_labels_tell_of_the_run_to_its_end(tmp_path: Path) -> None:
    with made(tmp_path / "runs", serve=False, textfile=tmp_path / "t.prom", labels={"team": "nlp"}) as monitor:
        monitor.step(1.0)
        assert 'team="nlp"' in (tmp_path / "t.prom").read_text(encoding="utf-8")
    text = (tmp_path / "t.prom").read_text(encoding="utf-8")
    assert 'state="finished"} 1.0' in text
    assert 'stabmon_part_failures_total{part="textfile",' in text


def test_a_monitor_can_be_mounted(tmp_path: Path) -> None:
    network = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4))
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    with Monitor(network, optimizer, folder=tmp_path, serve=False, token="open-sesame") as monitor:
        loss = network(torch.ones(2, 4)).sum()
        loss.backward()
        optimizer.step()
        monitor.step(loss)
        users = FastAPI()
        users.mount("/stabmon", monitor.app())
        browser = TestClient(users, base_url="http://127.0.0.1", client=("127.0.0.1", 5000))
        metrics = browser.get("/stabmon/metrics").text
        assert "stabmon_loss{" in metrics
        assert "stabmon_world_size" not in metrics  # no rank but this one is reached through it
        answer = browser.get("/stabmon/api/v1/runs", headers={"authorization": "Bearer open-sesame"})
        assert [run["id"] for run in answer.json()["runs"]] == [monitor.run_log.stem]  # type: ignore[union-attr]


def test_a_monitor_without_a_token_cannot_be_mounted(tmp_path: Path) -> None:
    with made(tmp_path, serve=False) as monitor, pytest.raises(ValueError, match="token=None: page and API ask for"):
        monitor.app()


def test_another_rank_serves_its_own_steps_and_no_layers(tmp_path: Path) -> None:
    summary = Summary("r1", 1, 2, Settings.of(port=0, folder=tmp_path))
    server = summary._server
    assert server is not None
    for step in (1, 2):
        summary.take(step)
    with urlopen(f"{server.url}/metrics") as answer:
        text = answer.read().decode()
    for line in ("stabmon_step{", "stabmon_steps_total{", "stabmon_step_duration_seconds_count{"):
        assert f'{line}rank="1",run="r1"}} 2.0' in text
    assert "layer=" not in text
    assert [p.name for p in tmp_path.iterdir()] == ["r1.1.target.json"]
    summary.close("finished", linger=True)
    assert list(tmp_path.iterdir()) == []


def test_another_ranks_port_is_the_given_one_and_its_local_rank_or_any(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = int(free.getsockname()[1])
    settings = Settings.of(port=port - 3, log=False)
    summaries = []
    for rank, local in ((3, "3"), (11, "3"), (12, "three")):  # of two machines, here on one
        monkeypatch.setenv("LOCAL_RANK", local)
        summaries.append(Summary("r1", rank, 16, settings))
    ports = [summary._server.port for summary in summaries if summary._server]
    for summary in summaries:
        summary.close("finished", linger=False)
    assert ports[0] == port
    assert len(set(ports)) == 3


WORKERS = """
import os, sys, torch
from torch import nn
from torch.utils.data import DataLoader
from stabmon import Monitor
model = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4))
monitor = Monitor(model, torch.optim.SGD(model.parameters(), lr=.1), folder=sys.argv[1], port=int(sys.argv[2]))
data = iter(DataLoader(torch.zeros(64, 4), batch_size=1, num_workers=2, multiprocessing_context="fork"))
next(data)
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_after_kill_9_workers_do_not_keep_the_port(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = int(free.getsockname()[1])
    command = [sys.executable, "-W", "ignore", "-c", WORKERS, str(tmp_path), str(port)]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as training:
        assert training.stdout is not None
        assert training.stdout.readline() == "ready\n"
        training.kill()
        training.wait(30)
        began = time.monotonic()
        socket.create_server(("127.0.0.1", port)).close()
        assert time.monotonic() - began < 1
    # Nobody was there to take it back; who scrapes finds it down, as it should be.
    assert [p.name for p in tmp_path.glob("*.json")] != []
