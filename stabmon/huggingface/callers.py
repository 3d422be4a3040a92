"""What the Trainer hands to no callback, looked for among the functions that are calling."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

from torch import Tensor
from transformers import Trainer, TrainingArguments
from transformers.trainer import __file__ as _TRAINER


def trainers() -> Iterator[tuple[Trainer, Any]]:
    """Those that are training, the innermost first, each with its trial of a search over settings or None.

    Only the Trainer's own variables are looked at: before Python 3.13 a user's would be kept alive by looking.
    """
    for frame in _frames():
        if frame.f_code.co_filename == _TRAINER and isinstance(caller := frame.f_locals.get("self"), Trainer):
            yield caller, frame.f_locals.get("trial")


def output_folder(args: TrainingArguments) -> str:
    """Where its checkpoints go: in a search over settings each trial's are in a folder of its own."""
    trainer, trial = next(trainers(), (None, None))
    named = getattr(trainer, "_get_output_dir", None)
    return str(args.output_dir if named is None else named(trial))


def resumed_from() -> Path | None:
    """The checkpoint that the calling Trainer goes on from."""
    named = (f.f_locals.get("resume_from_checkpoint") for f in _frames() if f.f_code.co_filename == _TRAINER)
    return next((Path(found) for found in named if isinstance(found, str | os.PathLike)), None)


def micro_batch() -> tuple[Tensor, Any] | None:
    """The loss and the batch that the calling Trainer's loop has just trained on."""
    frame = next((frame for frame in _frames() if "tr_loss_step" in frame.f_code.co_varnames), None)
    if frame is None:
        return None
    variables = frame.f_locals
    loss, inputs = variables.get("tr_loss_step"), variables.get("inputs")
    if isinstance(variables, dict):
        variables.clear()  # before Python 3.13 it is a copy, which would keep the batches until the next look
    return (loss, inputs) if isinstance(loss, Tensor) else None


def _frames() -> Iterator[FrameType]:
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        yield frame
        frame = frame.f_back
