"""Hugging Face Trainer: `Trainer(..., callbacks=[StabilityCallback()])`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from stabmon.detectors import Detector
from stabmon.detectors.given import detectors_of
from stabmon.huggingface.callers import output_folder, resumed_from
from stabmon.huggingface.checkpoints import AlertCheckpoints, Written
from stabmon.huggingface.endings import Endings, how
from stabmon.huggingface.losses import TrainerLoss, evaluation_loss
from stabmon.huggingface.reporters import History, reporting_trackers
from stabmon.huggingface.resumes import FOLDER, bring_along
from stabmon.monitor import Monitor
from stabmon.reaction import on_critical
from stabmon.records import RunState
from stabmon.settings import Settings
from stabmon.sinks import Sink

_NAME = "stabmon"
"""Under which the Trainer's checkpoints keep what the run is called."""
_endings = Endings()


class StabilityCallback(TrainerCallback):  # type: ignore[misc]  # transformers is not followed: it is huge
    """Watches a Trainer's run with a `Monitor`, made when training begins.

    The loss is what the model's own forward returned, or what the Trainer makes of it by a way of its own; gradients
    are read before the Trainer clips them. Run logs go to `<output_dir>/stabmon` unless a folder is given. Takes what
    `Monitor` takes, but for model and optimizer; wrong settings raise here, a taken port or a folder that cannot be
    written in `trainer.train()`, before the first step. The Trainer tells callbacks of no exception: a run that one
    ended says so when the program ends or trains again.
    """

    def __init__(
        self, *, detectors: Iterable[Detector] | None = None, sinks: Iterable[Sink] = (), **settings: Any
    ) -> None:
        Settings.of(**settings)
        self._detectors = None if detectors is None else detectors_of(detectors)
        self._sinks = list(sinks)
        self._settings = settings
        self._history = History()
        self._checkpoints = AlertCheckpoints()
        self._folder = Path()
        self._written: Written | None = None
        self._loss: TrainerLoss | None = None
        self._evaluated: list[float] = []
        self.monitor: Monitor | None = None
        """Watches the current or latest run; None before the first."""

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self._close(how(), linger=False)  # of a run that ended in an exception, such as too large a batch
        _endings.close()
        self._checkpoints.give_up(args)
        chosen = Settings.of(**self._settings)
        folder = chosen.folder or Path(args.output_dir) / FOLDER
        settings = {**self._settings, "folder": folder}
        settings["run"] = run = chosen.run or _recorded(state)
        if run and state.global_step and state.is_world_process_zero and chosen.log and not chosen.disabled:
            bring_along(folder, run, resumed_from())
        if state.is_world_process_zero and not chosen.disabled and chosen.log_to in (None, "trainer"):
            settings["log_to"] = [self._history, *reporting_trackers(args, state, kwargs["model"])]
        self._loss = TrainerLoss()
        if chosen.on_alert == "checkpoint":
            settings["on_alert"] = on_critical(self._checkpoints.want)
        self.monitor = Monitor(
            kwargs["model"],
            kwargs["optimizer"],
            detectors=self._detectors,
            sinks=self._sinks,
            framework="huggingface",
            start_step=state.global_step,
            max_steps=state.max_steps if state.max_steps > 0 else None,
            **settings,
        )
        _endings.begun(self.monitor)
        if log := self.monitor.run_log:
            state.stateful_callbacks[_NAME] = {"run": log.stem}
        self._folder = Path(output_folder(args))
        self._written = Written(self._folder) if state.is_world_process_zero else None

    def on_step_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self._tell_evaluation()

    def on_substep_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        if self._loss:
            self._loss.micro_batch()

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        if self.monitor and self._loss:
            self._loss.micro_batch()
            self.monitor.step(*self._loss.of_step())
            self._checkpoints.ask(args, state, control)
            control.should_training_stop |= self.monitor.should_stop

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        self._checkpoints.set_aside(self._folder, args, state)
        if self.monitor and self._written:
            self.monitor.saved(*self._written.news(state.global_step))

    def on_log(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        self._history.enter(state)

    def on_evaluate(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        if (loss := evaluation_loss(kwargs.get("metrics") or {})) is not None:
            self._evaluated.append(loss)  # a dict of evaluation sets comes one by one

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self._checkpoints.give_up(args)
        self._close("finished")

    def _tell_evaluation(self) -> None:
        """The mean over the sets."""
        if self.monitor and self._evaluated:
            self.monitor.evaluated(fmean(self._evaluated))
        self._evaluated = []

    def _close(self, state: RunState, linger: bool = True) -> None:
        self._tell_evaluation()
        if self.monitor:
            _endings.ended(self.monitor)
            self.monitor.close(state, linger=linger)


def _recorded(state: TrainerState) -> str | None:
    """What the run that goes on is called; the newest one in the folder may be another."""
    found = state.stateful_callbacks.get(_NAME) if state.global_step else None
    return found.get("run") if isinstance(found, Mapping) else None
