"""The Trainer's checkpoints: which there are, and one on an alert that costs none of those."""

from __future__ import annotations

import logging
import os
import re
import shutil
from pathlib import Path

from torch import distributed
from transformers import TrainerControl, TrainerState, TrainingArguments

from stabmon.records import Alert

_PREFIX = "checkpoint-"
_NAMES = r"(checkpoint|stabmon-(alert|good)-step)-\d+"

_log = logging.getLogger("stabmon")


class AlertCheckpoints:
    """The Trainer writes it, complete, as `stabmon-alert-step-N`, which a resume takes as any other by its path.

    Where `save_total_limit` deletes old ones, the last one of before the trouble is kept as `stabmon-good-step-N`.
    """

    def __init__(self) -> None:
        self._alert: Alert | None = None
        self._saving: Alert | None = None
        self._limit: int | None = None
        self._best: str | None = None
        self._ours = False

    def want(self, alert: Alert) -> None:
        """Ask for one after this step."""
        self._alert = alert

    def ask(self, args: TrainingArguments, state: TrainerState, control: TrainerControl) -> None:
        """At the end of a step: have the Trainer save, without deleting others, if one is wanted."""
        unsaved = self.give_up(args)  # with save_strategy="best" an evaluation decides whether a step is saved
        self._alert = self._alert or unsaved
        if self._alert is None:
            return
        self._saving, self._alert = self._alert, None
        self._ours, self._best = not control.should_save, state.best_model_checkpoint
        self._limit, args.save_total_limit = args.save_total_limit, None
        control.should_save = True

    def give_up(self, args: TrainingArguments) -> Alert | None:
        """What was asked for and not written until now is no longer expected; the alert that it was for."""
        unsaved, self._saving = self._saving, None
        if unsaved is not None:
            args.save_total_limit = self._limit
        return unsaved

    def set_aside(self, folder: Path, args: TrainingArguments, state: TrainerState) -> None:
        """It is written: out of the reach of later deletions with it. Every rank must come here."""
        alert = self.give_up(args)
        if alert is None:
            return
        try:
            if distributed.is_available() and distributed.is_initialized():
                distributed.barrier()  # each rank writes a part of the checkpoint
            written = folder / f"{_PREFIX}{state.global_step}"
            best = state.best_model_checkpoint is not None and Path(state.best_model_checkpoint) == written
            ours = self._ours and not (best and args.save_strategy == "best")
            if best and ours:  # without the alert the Trainer would not have saved it
                state.best_model_checkpoint = self._best
            if args.should_save:
                self._keep(written, ours, alert.since)
        except Exception:  # nothing of ours may end a training
            _log.exception("stabmon: checkpoint of step %d could not be set aside; training goes on", state.global_step)

    def _keep(self, written: Path, ours: bool, since: int) -> None:
        folder, step = written.parent, written.name.removeprefix(_PREFIX)
        kept = folder / f"stabmon-alert-step-{step}"
        if ours:
            written.rename(kept)
        else:
            _copy(written, kept)
        _log.warning("stabmon: checkpoint on an alert at %s", kept)
        if self._limit and (good := _last_good(folder, since)):
            _copy(folder / f"{_PREFIX}{good}", folder / f"stabmon-good-step-{good}")


class Written:
    """Which checkpoints lie in the output folder, by their steps."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._there = self._found({})

    def news(self, step: int) -> tuple[str, set[int]]:
        """Name of that step's, and the steps of those that were deleted since the last call."""
        before, self._there = self._there, self._found(self._there)
        return self._there.get(step, ""), set(before) - set(self._there)

    def _found(self, otherwise: dict[int, str]) -> dict[int, str]:
        try:
            names = [name for name in os.listdir(self._folder) if re.fullmatch(_NAMES, name)]
        except OSError:
            return otherwise
        return {int(name.rpartition("-")[2]): name for name in names}


def _last_good(folder: Path, since: int) -> int | None:
    """Step of the newest checkpoint of before the trouble; None if there is none."""
    names = (path.name.removeprefix(_PREFIX) for path in folder.glob(f"{_PREFIX}*"))
    return max((int(name) for name in names if name.isdigit() and int(name) < since), default=None)


def _copy(source: Path, target: Path) -> None:
    """The files under another name, which takes neither time nor room where the file system has hard links."""
    if not target.exists():
        shutil.copytree(source, target, copy_function=_link)


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
