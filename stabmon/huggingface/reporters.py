"""The trackers that a Trainer logs to: its reporters, and its own history."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from copy import copy
from types import FrameType
from typing import Any

from transformers import TrainerControl, TrainerState, TrainingArguments
from transformers.integrations import MLflowCallback, TensorBoardCallback, WandbCallback
from transformers.integrations.integration_utils import INTEGRATION_TO_CALLBACK
from transformers.trainer_callback import CallbackHandler

from stabmon.records import Alert
from stabmon.sinks.trackers import Tracker
from stabmon.sinks.trackers.choice import tracker_of

_COUNTS_ITS_ROWS = "dvclive"
"""Takes the number of rows as the step, so that rows of ours would shift the Trainer's."""


def reporting_trackers(args: TrainingArguments, state: TrainerState, model: Any) -> list[Tracker]:
    """Those of the Trainer that is calling, once they have been set up.

    Not through `Trainer.log`: it has only the current step, and classes derived from Trainer empty their own averages
    in it.
    """
    kinds = tuple(kind for name, kind in INTEGRATION_TO_CALLBACK.items() if name != _COUNTS_ITS_ROWS)
    return [_tracker(callback, args, state, model) for callback in _callbacks() if isinstance(callback, kinds)]


def _callbacks() -> list[Any]:
    """All callbacks of the Trainer. It never hands itself to one, so its handler is looked for among the callers."""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        caller = frame.f_locals.get("self")
        if isinstance(caller, CallbackHandler):
            return list(caller.callbacks)
        frame = frame.f_back
    return []


def _tracker(callback: Any, args: TrainingArguments, state: TrainerState, model: Any) -> Tracker:
    """The tracker itself where it is known, so that names and axes are those of other loops; else its reporter."""
    try:
        if isinstance(callback, WandbCallback):
            return tracker_of("wandb")
        if isinstance(callback, MLflowCallback):
            return tracker_of("mlflow")
        if isinstance(callback, TensorBoardCallback):
            return tracker_of(callback.tb_writer)
    except ValueError:
        pass  # it has not opened its run yet, and does so when it is logged to
    return Reporter(callback, args, state, model)


class Reporter:
    """Any of the Trainer's reporting callbacks, as a tracker; it puts its own prefix before the names."""

    def __init__(self, callback: Any, args: TrainingArguments, state: TrainerState, model: Any) -> None:
        self.name = type(callback).__name__.removesuffix("Callback").lower()
        self._callback = callback
        self._args = args
        self._state = state
        self._model = model

    def log(self, row: Mapping[str, float], step: int) -> None:
        state = copy(self._state)
        state.global_step = step
        self._callback.on_log(self._args, state, TrainerControl(), model=self._model, logs=dict(row))

    def tell(self, alert: Alert) -> None:
        """Reporters take numbers alone."""

    def flush(self) -> None:
        """It is the Trainer's to end."""


class History:
    """The newest row goes into the entry of `state.log_history` that the Trainer makes next, with its own step."""

    name = "log_history"

    def __init__(self) -> None:
        self._row: dict[str, float] = {}

    def log(self, row: Mapping[str, float], step: int) -> None:
        self._row = {**row, "stabmon/step": step}

    def tell(self, alert: Alert) -> None:
        """The history takes numbers alone."""

    def flush(self) -> None:
        """The Trainer saves it."""

    def enter(self, state: TrainerState) -> None:
        """Add what has come since the last time to the newest entry."""
        if state.log_history:
            state.log_history[-1].update(self._row)
            self._row = {}
