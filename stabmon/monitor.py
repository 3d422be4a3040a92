"""The one object that a training script makes: wires taps, pipeline, sinks and server; one call per optimizer step."""

from __future__ import annotations

import atexit
import logging
import os
import secrets
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from stabmon import __version__
from stabmon.detectors import Detector, default_detectors
from stabmon.pipeline import build
from stabmon.records import DROPPED_ROWS, Alert, Event, Run, RunState, Snapshot
from stabmon.runlog import RunLogWriter, path_of
from stabmon.server.thread import Server
from stabmon.settings import Settings
from stabmon.sinks import Sink
from stabmon.sinks.console import Console
from stabmon.sinks.prometheus import Prometheus
from stabmon.taps import Due
from stabmon.taps.instruments import Instruments
from stabmon.taps.loss import check

_log = logging.getLogger("stabmon")


@dataclass(frozen=True, slots=True)
class Schedule:
    """What each step reads: a pure function of the step, so that all ranks agree without asking."""

    every: int
    probe_every: int
    dense_until: int
    """Everything is read every step up to this one."""

    def due(self, step: int) -> Due:
        """Each block's own output change is read at every tenth probe: it costs a forward per block."""
        dense = step <= self.dense_until
        probe = dense or step % self.probe_every == 0
        blocks = step == 1 or step % 10 == 0 if dense else step % (10 * self.probe_every) == 0
        return Due(layers=dense or step % self.every == 0, probe=probe, blocks=probe and blocks)


class Monitor:
    """Watches one training. Make it before the first forward, call `step` once per optimizer step, close it at the end.

        with Monitor(model, optimizer) as monitor:
            for x, y in loader:
                loss = ...; loss.backward(); optimizer.step(); optimizer.zero_grad()
                monitor.step(loss, targets=y)

    `settings` are those of `stabmon.settings.Settings`. Raises only here and in the first `step`: TypeError or
    ValueError for arguments, OSError for a folder or a port. Later failures are logged and counted; training goes on.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: Optimizer | Sequence[Optimizer],
        *,
        detectors: Iterable[Detector] | None = None,
        sinks: Iterable[Sink] = (),
        framework: str = "torch",
        start_step: int = 0,
        **settings: Any,
    ) -> None:
        chosen = Settings.of(**settings)
        self._watch: _Watch | None = None
        if not chosen.disabled and _rank() == 0:
            judges = default_detectors() if detectors is None else list(detectors)
            self._watch = _Watch(model, _optimizers(optimizer), judges, list(sinks), framework, start_step, chosen)
            atexit.register(self.close, "stopped")

    @property
    def alerts(self) -> Sequence[Alert]:
        """All alerts so far, in order."""
        return self._watch.pipeline.alerts if self._watch else ()

    @property
    def latest(self) -> Snapshot | None:
        """The newest snapshot that has arrived."""
        return self._watch.latest if self._watch else None

    @property
    def url(self) -> str | None:
        """Where /metrics is served, without the path; None when it is not."""
        return self._watch.server.url if self._watch and self._watch.server else None

    @property
    def run_log(self) -> Path | None:
        """The file that the run is recorded in."""
        return self._watch.run_log if self._watch else None

    def step(self, loss: Tensor | float | None = None, targets: Tensor | None = None) -> None:
        """Tell that an optimizer step is complete.

        `loss`: the step's loss, a scalar; None = the mean of the `loss` that the model's forward returned.
        `targets`: the step's integer targets, aligned with the outputs; they give the baseline losses.
        """
        watch = self._watch
        if watch is None or watch.closed:
            return
        if watch.step == watch.start_step:
            check(loss)
            if targets is not None and not isinstance(targets, Tensor):
                raise TypeError(f"targets={type(targets).__name__}: must be a tensor of integer token or class ids")
        try:
            watch.take(loss, targets)
        except Exception:  # nothing of ours may end a training
            _log.exception("stabmon: failed at step %d and lets go of the model; training goes on", watch.step)
            self.close("stopped")

    def close(self, state: RunState = "finished") -> None:
        """The run is over: record what is under way and the final state, remove every hook. May be called twice."""
        atexit.unregister(self.close)
        if self._watch is not None and not self._watch.closed:
            self._watch.close(state)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        interrupted = kind is not None and issubclass(kind, KeyboardInterrupt)
        self.close("finished" if kind is None else "stopped" if interrupted else "failed")


class _Watch:
    """One watched run: what a Monitor holds unless it is disabled."""

    def __init__(
        self,
        model: nn.Module,
        optimizers: Sequence[Optimizer],
        detectors: Sequence[Detector],
        sinks: Sequence[Sink],
        framework: str,
        start_step: int,
        settings: Settings,
    ) -> None:
        self.step = self.start_step = start_step
        self.latest: Snapshot | None = None
        self.closed = False
        self._settings = settings
        self._schedule = Schedule(settings.every, settings.probe_every, 0 if start_step else settings.dense_steps)
        inner = unwrap(model)
        self._instruments = Instruments(inner, optimizers)
        try:
            self._open(inner, detectors, sinks, framework)
        except BaseException:
            self._instruments.detach()
            raise
        self._seconds = 0.0
        self._stepped_at = time.perf_counter()
        self._dropped = 0
        self._instruments.arm(self._schedule.due(start_step + 1))

    def _open(self, model: nn.Module, detectors: Sequence[Detector], sinks: Sequence[Sink], framework: str) -> None:
        """Everything outside the model; the port first, since nothing is left behind when it is taken."""
        settings = self._settings
        folder = settings.folder or Path("stabmon-runs")
        run = Run(
            name=_free_name(folder, settings.run or _run_name()),
            started=time.time(),
            framework=framework,
            model=type(model).__name__,
            version=__version__,
            architecture={"blocks": len(self._instruments.blocks), "start_step": self.start_step},
        )
        judges = [detector.name for detector in detectors]
        own = [RunLogWriter.name, Console.name]
        metrics = Prometheus(run, judges, [*self._instruments.names, *judges, *own, *(sink.name for sink in sinks)])
        self.server = Server(metrics.render, settings.host, settings.port) if settings.serve else None
        try:
            log = RunLogWriter(path_of(folder, run.name), run) if settings.log else None
        except BaseException:
            if self.server:
                self.server.stop()
            raise
        self.run_log = log.path if log else None
        logs: list[Sink] = [log] if log else []
        self.pipeline = build(run, detectors, [*logs, Console(), metrics, *sinks])
        if self.server:
            _log.info("stabmon: metrics of run %s at %s/metrics", run.name, self.server.url)

    def take(self, loss: Tensor | float | None, targets: Tensor | None) -> None:
        started = time.perf_counter()
        self.step += 1
        # What this call costs is known after it, so each row tells the cost of the call before it.
        seconds = (started - self._stepped_at, self._seconds)
        self._stepped_at = started
        self._feed(self._instruments.collect(self.step, loss, targets, seconds))
        self._instruments.arm(self._schedule.due(self.step + 1))
        self._seconds = time.perf_counter() - started

    def close(self, state: RunState) -> None:
        self.closed = True
        try:
            self._feed(self._instruments.arrived(wait=True))
        except Exception:
            _log.exception("stabmon: failed while closing")
        self._instruments.detach()
        self.pipeline.close(state)
        if self.server:
            time.sleep(self._settings.linger_seconds if state in ("finished", "failed") else 0)
            self.server.stop()

    def _feed(self, snapshots: Sequence[Snapshot]) -> None:
        for snapshot in snapshots:
            self.latest = snapshot
            self.pipeline.feed(snapshot, self._events(snapshot))

    def _events(self, snapshot: Snapshot) -> list[Event]:
        events = list(self._instruments.failures)
        self._instruments.failures.clear()
        if lost := self._instruments.dropped - self._dropped:
            self._dropped += lost
            events.append(Event(snapshot.step, snapshot.time, DROPPED_ROWS, {"count": lost}))
        return events


def unwrap(model: nn.Module) -> nn.Module:
    """The network itself: what torch.compile and DistributedDataParallel wrap."""
    while True:
        if isinstance(inner := getattr(model, "_orig_mod", None), nn.Module) or (
            isinstance(model, nn.parallel.DistributedDataParallel | nn.DataParallel)
            and isinstance(inner := model.module, nn.Module)
        ):
            model = inner
        else:
            return model


def _optimizers(given: Optimizer | Sequence[Optimizer]) -> list[Optimizer]:
    """The torch optimizers themselves: wrappers (Accelerate's) do not pass hooks on."""
    found = []
    for optimizer in given if isinstance(given, list | tuple) else [given]:
        while isinstance(inner := getattr(optimizer, "optimizer", None), Optimizer):
            optimizer = inner
        if not isinstance(optimizer, Optimizer):
            raise TypeError(f"optimizer={type(optimizer).__name__}: must be a torch.optim.Optimizer, or a list of them")
        found.append(optimizer)
    if not found:
        raise ValueError("optimizer=[]: must hold at least one optimizer; pass the one that trains the model")
    return found


def _rank() -> int:
    """Rank 0 alone is watched: under DistributedDataParallel its gradients and weights are everyone's."""
    there = torch.distributed.is_available() and torch.distributed.is_initialized()
    return torch.distributed.get_rank() if there else 0


def _run_name() -> str:
    """The tracker's or scheduler's name of this run, else the date and four hex digits."""
    known = next((os.environ[v] for v in ("WANDB_RUN_ID", "SLURM_JOB_ID") if os.environ.get(v)), None)
    return known or f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(2)}"


def _free_name(folder: Path, name: str) -> str:
    """`name`, or `name-2`, `name-3`, … where that run's log is there already."""
    number, free = 1, name
    while path_of(folder, free).exists():
        number += 1
        free = f"{name}-{number}"
    return free
