"""A real Prometheus that scrapes real trainings, asked as Grafana asks it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.dashboards.reading import ROOT, variables

STALLED, LEARNING = "2026-01-01-post", "2026-01-02-pre"
SCRAPE_SECONDS = 2.0
ENOUGH = 10
"""Scrapes of each training."""
_PATIENCE_SECONDS = 900.0
"""Alone on two cores it takes a minute."""
_TARGETS = "*.target.json"
"""What each rank of a training writes into its folder, for Prometheus to find it."""
_RULES = ROOT / "deploy" / "prometheus" / "rules.yaml"


class Prometheus:
    """The HTTP API of one, and the Unix time from which on there is something to look at."""

    def __init__(self, url: str, started: float) -> None:
        self.url = url
        self.started = started

    def get(self, path: str, **asked: Any) -> Any:
        query = urllib.parse.urlencode(asked, doseq=True)
        with urllib.request.urlopen(f"{self.url}/api/v1/{path}?{query}", timeout=120) as answer:
            return json.load(answer)["data"]

    def instant(self, expr: str, at: float) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.get("query", query=expr, time=at)["result"]
        return found

    def range(self, expr: str, start: float, end: float, step: float) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.get("query_range", query=expr, start=start, end=end, step=step)["result"]
        return found


@contextmanager
def scraped_trainings(folder: Path) -> Iterator[Prometheus]:
    """Two ranks of a run that stalls, and a run of one rank that learns, scraped for a while."""
    program = shutil.which("prometheus")
    if program is None:
        assert os.environ.get("CI") != "true", "prometheus is missing: install the Debian package prometheus"
        pytest.skip("prometheus is not installed (Debian package prometheus)")
    with ExitStack() as stack:
        wanted = [f"{STALLED}:0:2", f"{STALLED}:1:2", f"{LEARNING}:0:1"]
        command = [sys.executable, "-m", "tests.dashboards.training", str(folder), *wanted]
        trainings = [stack.enter_context(_process(command, folder / "trainings.log"))]
        _until(lambda: len(list(folder.glob(_TARGETS))) == len(wanted), trainings)
        prometheus = stack.enter_context(_prometheus(program, folder))
        _until(lambda: _scraped_at_the_start(prometheus, len(wanted)), trainings)
        (folder / "go").touch()
        _until(lambda: _seen_enough(prometheus), trainings)
        yield prometheus


def _scraped_at_the_start(prometheus: Prometheus, trainings: int) -> bool:
    """What counters count before that is no increase."""
    return bool(prometheus.instant(f"count(stabmon_steps_total) == {trainings}", time.time()))


def _seen_enough(prometheus: Prometheus) -> bool:
    """Each training was scraped often enough and evaluated, the stall was told of, and a rule fires for it."""
    wanted = (
        f"min(count_over_time(stabmon_step[1h])) >= {ENOUGH}",
        "count(stabmon_eval_loss) == 2",
        f'max_over_time(stabmon_alert_active{{run="{STALLED}", severity=~"warning|critical"}}[1h]) == 1',
        f'ALERTS{{alertstate="firing", alertname=~"Stabmon.+Alerts?", run="{STALLED}"}}',
    )
    now = time.time()
    return all(prometheus.instant(expr, now) for expr in wanted)


@contextmanager
def _prometheus(program: str, folder: Path) -> Iterator[Prometheus]:
    every = f"{SCRAPE_SECONDS:.0f}s"
    config = {
        "global": {"scrape_interval": every, "scrape_timeout": every, "evaluation_interval": every},
        "rule_files": [str(_RULES)],
        "scrape_configs": [{"job_name": "stabmon", "file_sd_configs": [{"files": [str(folder / _TARGETS)]}]}],
    }
    (folder / "prometheus.yaml").write_text(yaml.safe_dump(config))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    command = [program, f"--config.file={folder / 'prometheus.yaml'}", f"--web.listen-address={address}"]
    command += [f"--storage.tsdb.path={folder / 'tsdb'}", "--log.level=error"]
    with _process(command, folder / "prometheus.log") as process:
        prometheus = Prometheus(f"http://{address}", time.time())
        _until(lambda: _answers(f"http://{address}/-/ready"), [process])
        yield prometheus


@contextmanager
def _process(command: list[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, cwd=ROOT, start_new_session=True)
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # with its forks; nobody looks at what they would leave
        process.wait()


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def _until(is_so: Callable[[], bool], processes: list[subprocess.Popen[bytes]]) -> None:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while not is_so():
        ended = [process.args for process in processes if process.poll() is not None]
        assert not ended, f"ended too early: {ended}"
        assert time.monotonic() < deadline, "too slow"
        time.sleep(0.2)


def chosen(prometheus: Prometheus, uid: str) -> dict[str, str]:
    """What Grafana puts in for each variable: all of it where it may be several, else the first in its order."""
    values: dict[str, str] = {}
    for variable in variables(uid)[1:]:
        series, label = variable["query"]["query"].removeprefix("label_values(").removesuffix(")").rsplit(", ", 1)
        found = prometheus.get(f"label/{label}/values", **{"match[]": put_in(series, values)})
        assert found, f"{uid}: variable {variable['name']} has nothing to choose"
        ordered = sorted(found, reverse=variable["sort"] == 2)
        values[variable["name"]] = f"({'|'.join(found)})" if variable["multi"] else ordered[0]
    return values


def put_in(expr: str, values: Mapping[str, str], seconds: float = 60.0) -> str:
    """The query as Grafana sends it, for a time range of so many seconds."""
    rate = 4 * SCRAPE_SECONDS
    known = {"__rate_interval": f"{rate:.0f}s", "__range": f"{seconds:.0f}s", "datasource": "x", **values}
    for name in sorted(known, key=len, reverse=True):
        expr = expr.replace(f"${{{name}}}", known[name]).replace(f"${name}", known[name])
    return expr
