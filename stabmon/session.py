"""One watched run: what a Monitor holds from its making to its close."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer

from stabmon import __version__
from stabmon.detectors import Detector
from stabmon.outputs import Outputs
from stabmon.pipeline import build
from stabmon.records import DROPPED_ROWS, EVALUATION, NOT_SEEN, RESUME, Event, Run, RunState, Snapshot
from stabmon.runlog import RunLogWriter, path_of, read
from stabmon.runlog.naming import name_of
from stabmon.runlog.progress import events_of
from stabmon.server.thread import Server, serve
from stabmon.server.token import token_in
from stabmon.settings import Settings
from stabmon.sinks import Sink
from stabmon.sinks.console import Console
from stabmon.sinks.delivery import Delivering
from stabmon.sinks.hush import Hush, Hushed, hushed
from stabmon.sinks.prometheus import Prometheus
from stabmon.sinks.textfile import Textfile
from stabmon.taps.hooks import spent
from stabmon.taps.instruments import Instruments
from stabmon.taps.model.surroundings import surroundings
from stabmon.taps.ranks.together import Ranks
from stabmon.taps.schedule import schedule_of

KEEP_EVERY = 1000
"""Steps between stores of the baselines' counts, which a resume needs."""

_log = logging.getLogger("stabmon")


@dataclass(frozen=True)
class Subject:
    """What is watched, and by what."""

    model: nn.Module
    optimizers: Sequence[Optimizer]
    detectors: Sequence[Detector]
    outputs: Outputs
    framework: str
    start_step: int
    ranks: Ranks | None = None
    """Who else measures; None: nobody."""
    named: Callable[[str], None] = lambda name: None
    """Is told the run's name."""


class Session:
    """Attaches in its constructor, which leaves nothing behind when it raises."""

    def __init__(self, subject: Subject, settings: Settings) -> None:
        self.step = self.start_step = subject.start_step
        self.latest: Snapshot | None = None
        self.closed = False
        self.server: Server | None = None
        self._settings = settings
        self._schedule = schedule_of(settings, subject.start_step)
        self._instruments = Instruments(subject.model, subject.optimizers, settings, subject.ranks)
        self._instruments.notices.callback = subject.framework != "torch"
        try:
            self._open(subject)
        except BaseException:
            self._instruments.detach()
            if self.server:
                self.server.stop()
            raise
        self._spent = spent.seconds
        self._stepped_at = time.perf_counter()
        self._dropped = 0
        self._evaluation = float("nan")
        self._instruments.arm(self._schedule.due(self.step + 1))
        self._instruments.notices.said = self._say_early

    def _open(self, subject: Subject) -> None:
        """Everything outside the model; the port first, since nothing is left behind when it is taken."""
        settings = self._settings
        folder = settings.folder or Path("stabmon-runs")
        name, resumed = name_of(folder, settings.run, subject.start_step)
        self.run = run = _run_of(subject, settings, name, len(self._instruments.blocks))
        subject.named(name)
        judges = [detector.name for detector in subject.detectors]
        serving = run.world_size if settings.serve else None
        self.metrics = metrics = Prometheus(run, judges, max_series=settings.max_series, ranks=serving)
        path = path_of(folder, name)
        self.server = serve(settings, metrics.render, path if settings.log else None)
        extra = subject.outputs.open(run, folder, self._link)
        resume_at = subject.start_step if resumed else None
        self._run_log = RunLogWriter(path, run, resume_at=resume_at) if settings.log else None
        logs: list[Sink] = [self._run_log] if self._run_log else []
        # Muting stops nothing but messages: the run log has every alert, and so have trackers and metrics.
        hush = Hush(path) if settings.log else None
        sinks = [*logs, *(hushed(sink, hush) for sink in (Console(), *extra)), metrics]
        if settings.textfile:
            sinks.append(Textfile(settings.textfile, run, metrics.render))
        deliveries = [sink.delivery for sink in extra if isinstance(sink, Delivering)]
        metrics.expect([*self._instruments.names, *judges, *(sink.name for sink in sinks)], deliveries)
        self.pipeline = build(run, subject.detectors, sinks)
        self._events = self._recall(path, [sink for sink in sinks if isinstance(sink, Hushed)]) if resumed else []
        metrics.recall(self.pipeline.alerts)
        if self._run_log:
            self._run_log.keep_up()
        if self.server and settings.log:
            self.server.announce(folder, name)
        if subject.start_step and not resumed:
            self._instruments.origin.resume(self.step, None)
        self._say_where()

    def app(self, token: str | None) -> Any:
        """As `Monitor.app`."""
        from stabmon.server.app import create_app

        if (token := token or token_in(self._settings)) is None:
            raise ValueError("token=None: page and API ask for one; give it here, or as a setting")
        own = {self.run_log.stem: self.run_log} if self.run_log else {}
        return create_app(self.metrics.render, lambda: own, token, self._settings.hosts, True, lambda: self.closed)

    def _link(self) -> str | None:
        return self.server.page_url if self.server else None

    def _say_where(self) -> None:
        if self.server:
            _tell(f"stabmon: live page of run {self.run.name}: {self.server.page_url}")
            _tell(f"stabmon: metrics: {self.server.url}/metrics")
            if self.server.tunnel:
                _tell(f"stabmon: from the machine you sit at, first: {self.server.tunnel}")

    @property
    def architecture(self) -> Mapping[str, float | str]:
        return self._instruments.architecture.detail

    @property
    def run_log(self) -> Path | None:
        return self._run_log.path if self._run_log else None

    def _recall(self, path: Path, hushed: Sequence[Hushed]) -> list[Event]:
        """Give back what detectors, baselines and who is hushed knew; a run log that cannot be read costs them their
        memory."""
        try:
            recorded = read(path)
            newest = self.pipeline.recall(recorded.recalled(), recorded.alerts)
            told = [str(event.detail["what"]) for event in events_of(path) if event.kind == NOT_SEEN]
            self._instruments.origin.resume(self.step, newest, told)
            self._instruments.baselines.load(recorded.blob)
            for sink in hushed:
                sink.recall(self.pipeline.alerts, newest)
        except Exception:
            _log.exception("stabmon: could not read back %s; the detectors begin afresh", path)
        return [Event(self.step, time.time(), RESUME, {"at": self.step})]

    def take(self, loss: Tensor | float | None, targets: Tensor | None) -> None:
        """One optimizer step is complete."""
        with spent:
            self._take(loss, targets)

    def _take(self, loss: Tensor | float | None, targets: Tensor | None) -> None:
        started = time.perf_counter()
        self.step += 1
        # What this call costs is known after it, so each row tells the cost of the call before it, and of its hooks.
        host = (started - self._stepped_at, spent.seconds - self._spent, self._evaluation)
        self._stepped_at, self._spent, self._evaluation = started, spent.seconds, float("nan")
        self._feed(self._instruments.collect(self.step, loss, targets, host))
        if self._run_log and self.step % KEEP_EVERY == 0:
            self._keep(self._run_log)
        self._instruments.arm(self._schedule.due(self.step + 1))

    def _say_early(self) -> None:
        """What is noticed while no step comes is no row's, and yet has to be seen."""
        if self._run_log and not self.closed:
            now = time.time()
            events = [Event(self.step, now, NOT_SEEN, detail) for detail in self._instruments.notices.take()]
            self.pipeline.have(self._run_log, self.step, partial(self._run_log.note, events))

    def evaluated(self, loss: float) -> None:
        """An evaluation has ended; its loss goes with the next step's values."""
        self._evaluation = loss
        self.note(EVALUATION, {"eval_loss": loss})

    def note(self, kind: str, detail: Mapping[str, float | str]) -> None:
        """An event, which goes with the next step's values."""
        self._events.append(Event(self.step, time.time(), kind, detail))

    def close(self, state: RunState, linger: bool = True) -> None:
        self.closed = True
        try:
            self._feed(self._instruments.arrived(wait=True))
            if self._run_log and self.step > self.start_step:
                self._keep(self._run_log)
                self.pipeline.have(self._run_log, self.step, partial(self._run_log.note, self._events))
        except Exception:
            _log.exception("stabmon: failed while closing")
        self._instruments.detach()
        self.pipeline.close(state)
        if self._run_log and self.step == 0:
            with suppress(OSError):  # an attempt that did not get to a step, such as one with too large a batch
                self._run_log.path.unlink()
        if self.server:
            try:
                if linger:
                    self.server.linger(state, self._settings.linger_seconds)
            finally:
                self.server.stop()

    def _keep(self, log: RunLogWriter) -> None:
        for name, counts in self._instruments.baselines.dump().items():
            self.pipeline.have(log, self.step, partial(log.keep, name, self.step, counts))

    def _feed(self, snapshots: Sequence[Snapshot]) -> None:
        for snapshot in snapshots:
            self.latest = snapshot
            self.pipeline.feed(snapshot, self._take_events(snapshot))

    def _take_events(self, snapshot: Snapshot) -> list[Event]:
        events = [*self._events, *self._instruments.failures, *self._instruments.origin.events]
        self._events.clear()
        self._instruments.origin.events.clear()
        self._instruments.failures.clear()
        if lost := self._instruments.dropped - self._dropped:
            self._dropped += lost
            events.append(Event(snapshot.step, snapshot.time, DROPPED_ROWS, {"count": lost}))
        return events


def _run_of(subject: Subject, settings: Settings, name: str, blocks: int) -> Run:
    return Run(
        name=name,
        started=time.time(),
        world_size=subject.ranks.size if subject.ranks else 1,
        framework=subject.framework,
        model=type(subject.model).__name__,
        version=__version__,
        architecture={"blocks": blocks, "start_step": subject.start_step},
        labels=settings.labels,
        settings=settings.told(),
        environment=surroundings(subject.model, subject.optimizers),
    )


def _tell(line: str) -> None:
    """To the log at level INFO; to stderr where nobody hears that level and nobody silenced the logger `stabmon`.

    Without the address there is no page, and most programs leave logging as Python sets it: warnings only.
    """
    heard = _log.isEnabledFor(logging.INFO) and _log.hasHandlers()
    if heard or _log.level > logging.INFO:
        _log.info(line)
    else:
        sys.stderr.write(f"{line}\n")
