"""The whole chain, once: trainings that go wrong, Prometheus, Alertmanager, and stand-ins for Slack that are told."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Event

from stabmon.records import Alert
from stabmon.runlog import read
from tests.sinks.slack_server import SlackServer
from tests.stack.recorded import BlowUp, OneStep, written
from tests.stack.servers import alertmanager, patiently, prometheus, query, running, wall

_SCRIPT = Path(__file__).with_name("training.py")


@dataclass(frozen=True)
class Message:
    """What came, and when (Unix seconds)."""

    at: float
    title: str
    text: str


@dataclass(frozen=True)
class Told:
    """What was heard of a fault. `since`: when it happened, or was seen by a detector, in Unix seconds."""

    run: str
    since: float
    ended: float | None
    firing: Message | None
    resolved: Message | None
    direct: Message | None
    direct_resolved: Message | None

    def after(self, message: Message | None) -> float | None:
        return message.at - self.since if message else None


@dataclass(frozen=True)
class Play:
    told: dict[str, Told]
    messages: Sequence[Message]
    """All of Alertmanager's."""


class Inbox:
    """A stand-in for Slack, and what it was sent, whichever form it has."""

    def __init__(self, server: SlackServer) -> None:
        self._server = server

    def messages(self) -> list[Message]:
        arrived = zip(self._server.arrivals, self._server.messages, strict=False)
        return [Message(wall(at), *_words(message)) for at, message in arrived]

    def find(self, *words: str, after: float = 0.0) -> Message | None:
        """The first with all these words that came after that Unix time."""
        found = (m for m in self.messages() if m.at > after and all(word in f"{m.title}\n{m.text}" for word in words))
        return next(found, None)

    def wait(self, *words: str, after: float = 0.0) -> Message:
        try:
            patiently(lambda: self.find(*words, after=after))
        except AssertionError:
            raise AssertionError(f"no message with {words} came; there came: {self.messages()}") from None
        found = self.find(*words, after=after)
        assert found
        return found


def _words(message: dict[str, object]) -> tuple[str, str]:
    """Title and text of Alertmanager's attachments, or of our own blocks."""
    match message:
        case {"attachments": [{"title": str(title), "text": str(text)}]}:
            return title, text
        case {"text": str(title), "blocks": list(blocks)}:
            return title, "\n".join(str(block["text"]["text"]) for block in blocks if "text" in block)
    raise AssertionError(message)


@contextmanager
def trainings(folder: Path, webhook: str, *jobs: str) -> Iterator[None]:
    root = _SCRIPT.parents[2]
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(root), "STABMON_SLACK": webhook}
    with (folder / "trainings.log").open("wb") as log:
        nursery = subprocess.Popen(
            [sys.executable, _SCRIPT, folder, *jobs], env=env, stdout=log, stderr=log, start_new_session=True
        )
    try:
        yield
    finally:
        with suppress(ProcessLookupError):
            os.killpg(nursery.pid, signal.SIGKILL)
        nursery.wait()


def play(folder: Path) -> Play:
    """About a minute."""
    live, recorded = folder / "live", folder / "recorded"
    for made in (live, recorded):
        made.mkdir()
    with ExitStack() as stack:
        enter = stack.enter_context
        inbox, direct = Inbox(slack := enter(SlackServer())), Inbox(own := enter(SlackServer()))
        pager = enter(alertmanager(folder, slack.webhook))
        serve = [Path(sys.executable).with_name("stabmon"), "serve", recorded, "--wait", "--port", "PORT"]
        served = enter(running(serve, "/healthz", folder / "serve.log"))
        found = {"job_name": "stabmon", "file_sd_configs": [{"files": [f"{live}/*.target.json"]}]}
        kept = {"job_name": "stabmon-recorded", "static_configs": [{"targets": [served.removeprefix("http://")]}]}
        db = enter(prometheus(folder, pager, [found, kept]))
        enter(trainings(live, own.webhook, "stalls:stall", "trains:killed", "trains:preempted", "trains:finished"))
        go = Event()
        blown = enter(written(recorded, "blow-up", BlowUp("blow-up"), go))
        spiked = enter(written(recorded, "one-step", OneStep("one-step"), go))
        patiently(lambda: _is_running(db, "blow-up") and _is_running(db, "one-step"))
        go.set()
        _end(db, live)
        died = _kill(db, live)
        told = {
            "killed": Told(
                "killed", died, None, inbox.wait("killed: gone without an end", after=died), None, None, None
            ),
            "stall": _stalled(inbox, direct, live / "stall.stabmon"),
            "blow-up": _of_alerts("blow-up", blown, inbox, "residual_blowup"),
            "one-step": _of_alerts("one-step", spiked, inbox, "spike"),
        }
        return Play(told, inbox.messages())


def _end(db: str, folder: Path) -> None:
    """One by the scheduler, one by itself, each after it was scraped; then nothing is left of both."""
    patiently(lambda: _is_running(db, "preempted") and _is_running(db, "finished"))
    os.kill(int((folder / "preempted.pid").read_text()), signal.SIGTERM)
    (folder / "finished.stop").touch()
    codes = [folder / f"{name}.exit" for name in ("preempted", "finished")]
    patiently(lambda: all(code.exists() and code.read_text() for code in codes))
    assert [code.read_text() for code in codes] == ["0", "0"]
    patiently(lambda: not query(db, 'stabmon_run_state{run=~"preempted|finished"}'))


def _kill(db: str, folder: Path) -> float:
    patiently(lambda: _is_running(db, "killed"))
    os.kill(int((folder / "killed.pid").read_text()), signal.SIGKILL)
    return time.time()


def _is_running(db: str, run: str) -> bool:
    return bool(query(db, f'stabmon_run_state{{run="{run}",state="running"}} == 1 and on (run) stabmon_step'))


def _stalled(inbox: Inbox, direct: Inbox, run_log: Path) -> Told:
    fired, own = inbox.wait("critical: stall", "context_stall"), direct.wait("critical", "context_stall")
    run_log.with_suffix(".mend").touch()
    over, own_over = (
        inbox.wait("*over* stall: context_stall is critical"),
        direct.wait("resolved", "context_stall"),
    )
    alerts = read(run_log).alerts
    since = next(alert.time for alert in alerts if alert.severity == "critical")
    ended = next(alert.time for alert in alerts if alert.state == "cleared" and alert.time > since)
    return Told("stall", since, ended, fired, over, own, own_over)


def _of_alerts(run: str, alerts: Sequence[Alert], inbox: Inbox, detector: str) -> Told:
    fired, over = inbox.wait(f"{run}: {detector} warns"), inbox.wait(f"*over* {run}: {detector}")
    raised, ended = alerts[0], next(alert for alert in alerts if alert.state == "cleared")
    return Told(run, raised.time, ended.time, fired, over, None, None)
