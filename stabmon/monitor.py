"""The one object that a training script makes: wires taps, pipeline, sinks and server; one call per optimizer step."""

from __future__ import annotations

import atexit
import logging
import os
import signal
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from torch import Tensor, nn
from torch.optim import Optimizer

from stabmon.detectors import Detector
from stabmon.detectors.given import detectors_of
from stabmon.follower import Follower
from stabmon.meeting import Meeting, meet
from stabmon.outputs import Outputs
from stabmon.reaction import OnAlert, Reaction, nothing, on_critical
from stabmon.records import CHECKPOINT, PLANNED, Alert, RunState, Snapshot
from stabmon.session import Session, Subject
from stabmon.settings import Settings
from stabmon.sinks import Sink
from stabmon.taps.loss import check
from stabmon.taps.model.wrappings import optimizers_of, unwrap, wrappings
from stabmon.taps.ranks.sharding import local
from stabmon.taps.ranks.together import Together
from stabmon.taps.schedule import schedule_of

_LONGEST_NAME = 200
"""Characters of a checkpoint's that are recorded."""

_log = logging.getLogger("stabmon")


class Monitor:
    """Watches one training. Make it before the first forward, call `step` once per optimizer step, close it at the end.

        with Monitor(model, optimizer) as monitor:
            for x, y in loader:
                loss = ...; loss.backward(); optimizer.step(); optimizer.zero_grad()
                monitor.step(loss, targets=y)

    `settings` are those of `stabmon.settings.Settings`; `max_steps`: how many steps the run is to have in all. Raises
    only here and in the first `step`: TypeError or ValueError for arguments, OSError for a folder or a port. Later
    failures are logged and counted; training goes on.
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
        max_steps: int | None = None,
        **settings: Any,
    ) -> None:
        if not isinstance(model, nn.Module):
            several = "; put several into one nn.ModuleList" if isinstance(model, list | tuple | dict) else ""
            raise TypeError(f"model={type(model).__name__}: must be the torch.nn.Module that is trained{several}")
        _check_steps(start_step, max_steps)
        judges = detectors_of(detectors)
        chosen = Settings.of(**settings)
        self._session: Session | None = None
        self._follower: Follower | None = None
        self._closed = self._should_stop = False
        self._process = os.getpid()
        act = self._action(chosen.on_alert)
        inner, optimizers = unwrap(model), optimizers_of(optimizer)
        met = meet(chosen, start_step, act is not None, inner)
        self._ranks = _ranks(met, model, inner) if met.together else None
        if met.watches and met.rank == 0:
            outputs = Outputs(list(sinks), met.settings)
            subject = Subject(inner, optimizers, judges, outputs, framework, start_step, self._ranks, met.name_run)
            self._session = Session(subject, met.settings)
            atexit.register(self._at_exit)
        elif met.watches and self._ranks:
            self._follower = Follower(inner, optimizers, met, self._ranks, framework != "torch")
        if max_steps is not None:
            self.planned(max_steps)
        self._reaction: Reaction | None = None
        if met.reacts and met.watches:
            act = act or nothing
            self._reaction = Reaction(act, met.settings.every, met.start_step, len(self.alerts), met.together)

    @property
    def should_stop(self) -> bool:
        """Whether `on_alert="stop"` asks the loop to end; the same on every rank, after the same step."""
        return self._should_stop

    @property
    def alerts(self) -> Sequence[Alert]:
        """All alerts so far, in order."""
        return self._session.pipeline.alerts if self._session else ()

    @property
    def latest(self) -> Snapshot | None:
        """The newest snapshot that has arrived."""
        return self._session.latest if self._session else None

    @property
    def url(self) -> str | None:
        """Where /metrics is served, without the path; None when it is not."""
        return self._session.server.url if self._session and self._session.server else None

    @property
    def page_url(self) -> str | None:
        """Where the live page is, with the token that it asks for; None when nothing is served."""
        return self._session.server.page_url if self._session and self._session.server else None

    @property
    def architecture(self) -> Mapping[str, float | str]:
        """What the model was found to be in its first step, such as its `description`; empty before."""
        return self._session.architecture if self._session else {}

    @property
    def run_log(self) -> Path | None:
        """The file that the run is recorded in."""
        return self._session.run_log if self._session else None

    def app(self, token: str | None = None) -> Any:
        """Page, API and metrics as an ASGI application, to be mounted in a web server of yours (`serve=False` then):
        `app.mount("/stabmon", monitor.app())`. It shows the run to whoever has the token, by default the settings'.

        `hosts` of the settings must name the hosts that yours is asked for by. ValueError: there is no token, or the
        Monitor watches nothing here.
        """
        if self._session is None:
            raise ValueError("this Monitor watches nothing here (disabled, or not rank 0), so it has nothing to show")
        return self._session.app(token)

    def step(self, loss: Tensor | float | None = None, targets: Tensor | None = None) -> None:
        """Tell that an optimizer step is complete.

        `loss`: the step's loss, a scalar; None = the mean of the `loss` that the model's forward returned.
        `targets`: the step's integer targets, aligned with the outputs; they give the baseline losses.
        """
        watching = self._session or self._follower
        if watching is not None and not watching.closed:
            self._take(watching, loss, targets)
        if self._ranks is not None and not self._closed:
            self._ranks.after_step()
        if self._reaction is not None and not self._closed:
            self._reaction.after_step(self.alerts)

    def _take(self, session: Session | Follower, loss: Tensor | float | None, targets: Tensor | None) -> None:
        if session.step == session.start_step:
            check(loss)
            if targets is not None and not isinstance(targets, Tensor):
                raise TypeError(f"targets={type(targets).__name__}: must be a tensor of integer token or class ids")
        try:
            session.take(loss, targets)
        except Exception:  # nothing of ours may end a training
            _log.exception("stabmon: failed at step %d and lets go of the model; training goes on", session.step)
            session.close("stopped")

    def evaluated(self, loss: float) -> None:
        """Tell that an evaluation has ended with this loss; it is recorded as `eval_loss` of the next step."""
        self._tell("an evaluation", partial(_evaluated, loss))

    def saved(self, checkpoint: str | Path, gone: Iterable[int] = ()) -> None:
        """Tell that a checkpoint of the newest step was written, by its path, of which the last part is recorded; an
        alert then names the last one of before it. `gone`: steps of checkpoints that were deleted meanwhile."""
        self._tell("a checkpoint", partial(_saved, checkpoint, gone))

    def planned(self, steps: int) -> None:
        """Tell how many optimizer steps the run is to have in all, so that its page says how long it still takes."""
        self._tell("the planned number of steps", partial(_planned, steps))

    def _tell(self, what: str, tell: Callable[[Session], None]) -> None:
        """Before the first step it raises, afterwards it is logged."""
        session = self._session
        if session is None or session.closed:
            return
        try:
            tell(session)
        except (TypeError, ValueError) as error:
            if session.step == session.start_step:
                raise
            _log.error("stabmon: %s of step %d is not recorded: %s", what, session.step, error)

    def close(self, state: RunState = "finished", *, linger: bool = True) -> None:
        """The run is over: record what is under way and the final state, remove every hook. May be called twice.

        `linger`: whether to go on serving for as long as the settings say.
        """
        if os.getpid() != self._process:  # a forked child ends; the run is its parent's
            return
        self._closed = True
        atexit.unregister(self._at_exit)
        if self._session is not None and not self._session.closed:
            self._session.close(state, linger)
        if self._follower is not None and not self._follower.closed:
            self._follower.close(state, linger)

    def _at_exit(self) -> None:
        """The program ends and nobody closed the run: `sys.last_value` is the exception that ended it, if one did."""
        error = getattr(sys, "last_exc", getattr(sys, "last_value", None))
        self.close("failed" if isinstance(error, Exception) else "stopped")

    def _action(self, on_alert: Any) -> OnAlert | None:
        """What to do about an alert beside telling it."""
        if on_alert == "checkpoint":
            raise ValueError(
                "on_alert='checkpoint': a plain loop's checkpoints are its own; pass a function of the alert that "
                "writes one, or 'stop' and look at monitor.should_stop"
            )
        if on_alert == "stop":
            return on_critical(self._stop)
        function: OnAlert | None = None if on_alert == "log" else on_alert
        return function

    def _stop(self, alert: Alert) -> None:
        self._should_stop = True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close("finished" if error is None else _ended_by(error))


def _evaluated(loss: float, session: Session) -> None:
    if loss is None:
        raise TypeError("loss=None: must be the evaluation's loss, a number")
    check(loss)
    session.evaluated(float(loss))


def _saved(checkpoint: str | Path, gone: Iterable[int], session: Session) -> None:
    if not isinstance(checkpoint, str | Path):
        raise TypeError(f"checkpoint={checkpoint!r}: must be the path that the checkpoint was written to")
    deleted = " ".join(str(int(step)) for step in gone)
    name = Path(checkpoint).name[:_LONGEST_NAME]
    session.note(CHECKPOINT, {"name": name, "gone": deleted} if deleted else {"name": name})


def _planned(steps: int, session: Session) -> None:
    _check_steps(0, steps)
    session.note(PLANNED, {"steps": steps})


def _check_steps(start: int, planned: int | None) -> None:
    if not isinstance(start, int) or start < 0:
        raise ValueError(f"start_step={start!r}: must be a whole number, 0 or more: the steps taken so far")
    if planned is not None and (not isinstance(planned, int) or planned < 1):
        raise ValueError(
            f"max_steps={planned!r}: must be a whole number, 1 or more; leave it out where it is not known"
        )


def _ended_by(error: BaseException) -> RunState:
    if isinstance(error, SystemExit) and error.code == 128 + signal.SIGTERM:
        return "preempted"  # what handlers of that signal exit with
    leaving = isinstance(error, KeyboardInterrupt) or (isinstance(error, SystemExit) and not error.code)
    return "stopped" if leaving else "failed"


def _ranks(met: Meeting, model: nn.Module, inner: nn.Module) -> Together:
    joinable: list[Any] = [m for m in wrappings(model) if hasattr(m, "_join_config")]
    device = local(next(inner.parameters())).device
    schedule = schedule_of(met.settings, met.start_step)

    def joining() -> bool:
        return any(m._join_config.enable for m in joinable)

    return Together(schedule, met.start_step, device, met.alike, joining)
