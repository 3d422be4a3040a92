"""Lightning Trainer: `Trainer(..., callbacks=[StabilityCallback()])`, of `lightning` and `pytorch_lightning` alike."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Mapping
from importlib import import_module
from importlib.util import find_spec
from math import inf
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import Tensor, nn

from stabmon.detectors import Detector
from stabmon.detectors.given import detectors_of
from stabmon.monitor import Monitor
from stabmon.reaction import on_critical
from stabmon.records import RunState
from stabmon.settings import Settings
from stabmon.sinks import Sink

_PACKAGES = {"lightning": "lightning.pytorch", "pytorch_lightning": "pytorch_lightning"}
_EVAL_LOSSES = ("val_loss", "val/loss", "eval_loss", "eval/loss")
"""Names under which a validation's loss is looked for in `trainer.callback_metrics`."""


def _callback_class() -> Any:
    """That of the package in use, else of one that is installed; the Trainers of both take either's callbacks."""
    used = (home for home in _PACKAGES.values() if sys.modules.get(home))
    installed = (home for package, home in _PACKAGES.items() if find_spec(package))
    home = next(used, None) or next(installed, None)
    if home is None:
        raise ModuleNotFoundError(
            "stabmon.lightning needs lightning or pytorch-lightning; install one: pip install 'stabmon[lightning]'"
        )
    return import_module(home).Callback


class StabilityCallback(_callback_class()):  # type: ignore[misc]  # known at run time only
    """Watches a Trainer's fit with a `Monitor`, made before the sanity check; a step is one of every optimizer.

    The loss is that of `training_step`, the targets are the batch's `labels`, or `y` of a batch `(x, y)`; gradients are
    read before Lightning clips them. Run logs go to `<trainer.log_dir>/stabmon` unless a folder is given, and a fit
    from a checkpoint goes on in the run log that the checkpoint was saved beside. Takes what `Monitor` takes, but for
    model and optimizer; wrong settings raise here, a taken port or a folder that cannot be written in `trainer.fit()`,
    before the first step.
    """

    def __init__(
        self, *, detectors: Iterable[Detector] | None = None, sinks: Iterable[Sink] = (), **settings: Any
    ) -> None:
        Settings.of(**settings)
        self._detectors = None if detectors is None else detectors_of(detectors)
        self._sinks = list(sinks)
        self._settings = settings
        self._recorded: Path | None = None
        self._restored: tuple[int, int] | None = None
        self._steps = self._counted = 0
        """Steps that the Monitor was told of, and the Trainer's count after the last one: it counts several where a
        batch has several."""
        self._planned: int | None = None
        self._losses: list[Tensor] = []
        self._checkpoints = _Checkpoints()
        self.monitor: Monitor | None = None
        """Watches the current or latest fit; None before the first."""

    def setup(self, trainer: Any, pl_module: nn.Module, stage: str) -> None:
        if stage == "fit":
            self._close("stopped")
            self.monitor = self._recorded = self._restored = None

    def state_dict(self) -> dict[str, Any]:
        """Where the run is recorded, and how far; nothing else of stabmon goes into a checkpoint."""
        log = self.monitor.run_log if self.monitor else None
        return {"run_log": str(log.absolute()), "steps": (self._steps, self._counted)} if log else {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._recorded = Path(state_dict["run_log"]) if "run_log" in state_dict else None
        self._restored = state_dict.get("steps")

    def on_save_checkpoint(self, trainer: Any, pl_module: nn.Module, checkpoint: dict[str, Any]) -> None:
        if trainer.is_global_zero:
            self._checkpoints.writing(trainer, self._steps + (_steps(trainer) > self._counted))

    def on_sanity_check_start(self, trainer: Any, pl_module: nn.Module) -> None:
        self._start(trainer, pl_module)

    def on_train_start(self, trainer: Any, pl_module: nn.Module) -> None:
        if self.monitor is None:  # there was no sanity check
            self._start(trainer, pl_module)
        self._planned = _planned(trainer, pl_module)
        if self.monitor and self._planned:
            self.monitor.planned(self._planned)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        if self.monitor is None:
            return
        self._checkpoints.tell(trainer, self.monitor, self._steps)
        loss = outputs.get("loss") if isinstance(outputs, Mapping) else outputs
        if isinstance(loss, Tensor) and loss.numel() == 1:
            # Lightning has divided it already where it accumulates by itself.
            parts = trainer.accumulate_grad_batches if pl_module.automatic_optimization else 1
            self._losses.append(loss.detach().float().reshape(()) * parts)
        if grown := _steps(trainer) - self._counted:
            self._steps, self._counted = self._steps + 1, self._counted + grown
            if grown > 1 and self._planned:
                self.monitor.planned(self._steps + (self._planned - self._counted) // grown)
                self._planned = None
            self.monitor.step(torch.stack(self._losses).mean() if self._losses else None, _targets(batch))
            self._losses.clear()
            trainer.should_stop |= self.monitor.should_stop

    def on_validation_end(self, trainer: Any, pl_module: nn.Module) -> None:
        found = (trainer.callback_metrics.get(name) for name in _EVAL_LOSSES)
        loss = next((value for value in found if value is not None), None)
        if self.monitor and loss is not None and not trainer.sanity_checking:
            self.monitor.evaluated(float(loss))

    def on_train_end(self, trainer: Any, pl_module: nn.Module) -> None:
        if self.monitor:
            self._checkpoints.tell(trainer, self.monitor, self._steps)
        self._close("finished")

    def on_exception(self, trainer: Any, pl_module: nn.Module, exception: BaseException) -> None:
        preempted = type(exception).__name__ == "SIGTERMException"
        interrupted = isinstance(exception, KeyboardInterrupt)
        self._close("preempted" if preempted else "stopped" if interrupted else "failed")

    def _start(self, trainer: Any, pl_module: nn.Module) -> None:
        given = Settings.of(**self._settings)
        log_dir = trainer.log_dir or trainer.default_root_dir  # asked for on every rank: it is broadcast
        self._steps, self._counted = self._begin_at(_steps(trainer)), _steps(trainer)
        self._losses.clear()
        self._checkpoints = _Checkpoints(trainer, self._steps / max(1, self._counted))
        last = self._recorded if self._steps and self._recorded and self._recorded.exists() else None
        folder = given.folder or (last.parent if last else Path(log_dir) / "stabmon")
        run = given.run or (last.stem if last and (folder / last.name).exists() else None)
        by_trainer = given.log_to in (None, "trainer") and trainer.is_global_zero and not given.disabled
        log_to = list(trainer.loggers) if by_trainer else given.log_to
        on_alert = given.on_alert
        if on_alert == "checkpoint":
            on_alert = on_critical(
                lambda alert: trainer.save_checkpoint(folder / f"stabmon-alert-step-{self._steps}.ckpt")
            )
        self.monitor = Monitor(
            pl_module,
            trainer.optimizers,
            detectors=self._detectors,
            sinks=self._sinks,
            framework="lightning",
            start_step=self._steps,
            **{**self._settings, "folder": folder, "run": run, "log_to": log_to, "on_alert": on_alert},
        )

    def _begin_at(self, counted: int) -> int:
        """Steps taken so far, given the Trainer's own count."""
        if self._restored and self._restored[1] <= counted:
            return self._restored[0] + (self._restored[1] < counted)
        return self._steps if counted == self._counted else counted  # the same Trainer may go on

    def _close(self, state: RunState) -> None:
        if self.monitor:
            self.monitor.close(state)


class _Checkpoints:
    """Which steps the Trainer's checkpoint files are of, and which of them are gone.

    A callback hears of one before it is written; whether it is there is looked up with the next batch.
    """

    def __init__(self, trainer: Any = None, share: float = 1.0) -> None:
        """`share`: of the Trainer's steps, how many are one that the Monitor is told of."""
        self._new: list[str] = []
        self._known: dict[str, int] = {}
        """Path -> the step it is of."""
        for path in _newest(trainer) if trainer else ():
            if named := re.search(r"step=(\d+)", Path(path).name):  # those of before a resume
                self._known[path] = round(int(named[1]) // max(1, len(trainer.optimizers)) * share)
        self._told = set(self._known.values())

    def writing(self, trainer: Any, step: int) -> None:
        """From inside the event: the Trainer's `save_checkpoint`, which alone knows the path, is among the callers."""
        frame: FrameType | None = sys._getframe()
        while frame is not None and frame.f_code is not type(trainer).save_checkpoint.__code__:
            frame = frame.f_back
        if frame is not None:
            path = str(frame.f_locals["filepath"])
            self._new.append(path)
            self._known[path] = step

    def tell(self, trainer: Any, monitor: Monitor, step: int) -> None:
        """Of what was written since the last call, up to that step."""
        new = [path for path in self._new if self._known.get(path, 0) <= step]
        if not new:
            return
        self._new, kept = [path for path in self._new if path not in new], _newest(trainer)
        self._known = {path: of for path, of in self._known.items() if path in kept or os.path.exists(path)}
        if written := [path for path in new if path in self._known]:
            there = set(self._known.values())
            gone, self._told = self._told - there, there
            monitor.saved(written[0], gone)


def _newest(trainer: Any) -> set[str]:
    """Paths that the Trainer's callbacks keep the best and newest at, which need not be on a disk."""
    found = set()
    for callback in trainer.checkpoint_callbacks:
        paths = [getattr(callback, name, "") for name in ("best_model_path", "last_model_path")]
        found |= {str(path) for path in (*paths, *getattr(callback, "best_k_models", ())) if path}
    return found


def _planned(trainer: Any, pl_module: Any) -> int | None:
    """Steps of the whole fit; None: not known. Its data are there by now, so nothing is loaded for it."""
    try:
        automatic = pl_module.automatic_optimization
        steps = trainer.estimated_stepping_batches if automatic else trainer.max_steps
    except Exception:  # where the number of batches to a step changes, Lightning raises
        return None
    return int(steps) // max(1, len(trainer.optimizers)) if 0 < steps < inf else None


def _steps(trainer: Any) -> int:
    """Completed steps: Lightning counts each optimizer's."""
    return int(trainer.global_step) // max(1, len(trainer.optimizers))


def _targets(batch: Any) -> Tensor | None:
    """Integer targets of a batch that is a mapping with `labels`, or a pair (x, y)."""
    found = None
    if isinstance(batch, Mapping):
        found = batch.get("labels")
    elif isinstance(batch, tuple | list) and len(batch) == 2:
        found = batch[1]
    whole = isinstance(found, Tensor) and found.dtype in (torch.int16, torch.int32, torch.int64)
    return found if whole else None
