"""Prometheus and Alertmanager of Debian, on free ports, with the files of deploy/ at a pace of seconds."""

import json
import re
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.parse import quote
from urllib.request import Request, urlopen

import yaml

from deploy import build
from deploy.rules.rule import Timing
from tests.deploy.programs import program
from tests.sinks.slack_server import until

SCRAPE_SECONDS = 1
RULES_SECONDS = 2
"""Windows of the rules are those of so long a scrape interval: on a busy machine one scrape and another comes too late,
and a run that none reaches for four intervals has vanished."""
PATIENCE = 600.0
"""Seconds. Alone on two cores the longest wait is half a minute."""
_FASTER = 150
"""Alertmanager's waits are so many times shorter here, and a second at least."""


@contextmanager
def running(command: Sequence[str | Path], ready: str, log: Path) -> Iterator[str]:
    """A server until the end, and its address. It is up when `ready`, its path, answers."""
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    with log.open("wb") as out:
        server = subprocess.Popen(
            [str(part).replace("PORT", str(port)) for part in command], stdout=out, stderr=subprocess.STDOUT
        )
    try:
        patiently(lambda: server.poll() is not None or answers(address + ready))
        assert server.poll() is None, log.read_text()
        yield address
    finally:
        server.kill()  # nobody looks at what it would leave
        server.wait()


@contextmanager
def alertmanager(folder: Path, webhook: str) -> Iterator[str]:
    """The committed configuration and template, faster, and with Slack's address in the file that it names."""
    source = build.HERE / "alertmanager"
    secret = folder / "slack-webhook"
    secret.write_text(webhook + "\n")
    text = (source / "alertmanager.yaml").read_text(encoding="utf-8")
    text = text.replace("/etc/alertmanager/slack-webhook", str(secret)).replace(
        "stabmon.tmpl", f"{source}/stabmon.tmpl"
    )
    text = re.sub(r"(group_wait|group_interval): (\w+)", lambda found: f"{found[1]}: {_faster(found[2])}", text)
    (folder / "alertmanager.yaml").write_text(text)
    command = [
        program("prometheus-alertmanager"),
        f"--config.file={folder}/alertmanager.yaml",
        f"--storage.path={folder}/alertmanager",
        "--web.listen-address=127.0.0.1:PORT",
        "--cluster.listen-address=",
    ]
    with running(command, "/-/ready", folder / "alertmanager.log") as address:
        yield address


@contextmanager
def prometheus(folder: Path, alertmanager: str, scrape: Sequence[dict[str, Any]]) -> Iterator[str]:
    """The generated rules, at a scrape interval of a second."""
    rules = build.text({"groups": build.groups(Timing(RULES_SECONDS))})
    (folder / "rules.yaml").write_text(rules)
    seconds = f"{SCRAPE_SECONDS}s"
    config = {
        "global": {"scrape_interval": seconds, "evaluation_interval": seconds},
        "rule_files": ["rules.yaml"],
        "alerting": {"alertmanagers": [{"static_configs": [{"targets": [alertmanager.removeprefix("http://")]}]}]},
        "scrape_configs": list(scrape),
    }
    (folder / "prometheus.yaml").write_text(yaml.safe_dump(config))
    command = [
        program("prometheus"),
        f"--config.file={folder}/prometheus.yaml",
        f"--storage.tsdb.path={folder}/prometheus",
        "--web.listen-address=127.0.0.1:PORT",
        "--rules.alert.resend-delay=2s",
    ]
    with running(command, "/-/ready", folder / "prometheus.log") as address:
        yield address


def patiently(condition: Callable[[], object]) -> None:
    """Waits for it, without taking the time of those that it waits for."""
    until(condition, PATIENCE, pause=0.1)


def query(prometheus: str, expr: str) -> list[dict[str, Any]]:
    """The instant vector."""
    answer = get(f"{prometheus}/api/v1/query?query={quote(expr)}")
    found: list[dict[str, Any]] = answer["data"]["result"]
    return found


def get(url: str) -> Any:
    with urlopen(url, timeout=PATIENCE) as answer:
        return json.load(answer)


def post(url: str, content: object) -> None:
    headers = {"content-type": "application/json"}
    with urlopen(Request(url, json.dumps(content).encode(), headers), timeout=PATIENCE):
        pass


def answers(url: str) -> bool:
    try:
        with urlopen(url, timeout=5):
            return True
    except (URLError, OSError):
        return False


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def _faster(length: str) -> str:
    seconds = int(length[:-1]) * {"s": 1, "m": 60, "h": 3600}[length[-1]]
    return f"{max(1, seconds // _FASTER)}s" if seconds else "0s"


def wall(monotonic: float) -> float:
    """Unix time of a moment of `time.monotonic()`."""
    return time.time() - time.monotonic() + monotonic
