"""The Trainer's own loss of a step and its targets, where the model does not return what is minimised."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from transformers import Trainer

from stabmon.huggingface.callers import micro_batch, trainers

_IGNORED = -100

_log = logging.getLogger("stabmon")


class TrainerLoss:
    """Read under label smoothing, a `compute_loss_func`, a Trainer with a `compute_loss` or `training_step` of its own,
    and in several processes that count each other's tokens: what the model returns is then a part of the loss.

    It is what the Trainer logs, but of each step: the sum over its micro-batches as they count in its gradient, also
    where it is not finite. The Trainer hands neither loss nor batch to a callback, so its own variables are looked at.
    """

    def __init__(self) -> None:
        trainer, _ = next(trainers(), (None, None))
        self._own = trainer is not None and _has_its_own(trainer)
        self._needed = self._own or (trainer is not None and _counts_all_tokens(trainer))
        self._parts: list[Tensor] = []
        self._targets: Tensor | None = None

    def micro_batch(self) -> None:
        """At the end of each micro-batch, from inside the event."""
        try:
            if self._needed and (found := micro_batch()):
                loss, inputs = found
                self._parts.append(loss.detach())
                self._targets = _targets(inputs) if self._own else None
        except Exception:  # nothing of ours may end a training
            _log.exception("stabmon: the Trainer's own loss cannot be read any more; training goes on")
            self._needed = False

    def of_step(self) -> tuple[Tensor | None, Tensor | None]:
        """The loss, a scalar on the device, and the targets of the last micro-batch, after its end; None: those that
        the model was given, and what it returned."""
        loss = torch.stack(self._parts).sum() if self._parts else None
        targets, self._targets = self._targets, None
        self._parts.clear()
        return loss, targets


def evaluation_loss(metrics: Mapping[str, Any]) -> float | None:
    """Of one evaluation set, its name in the prefix: `eval_loss`, or `eval_short_runtime` and `eval_short_loss`."""
    prefixes = ["eval", *(name.removesuffix("_runtime") for name in metrics if name.endswith("_runtime"))]
    found = (metrics.get(f"{prefix}_loss") for prefix in prefixes)
    return next((float(loss) for loss in found if isinstance(loss, int | float)), None)


def _has_its_own(trainer: Trainer) -> bool:
    given = (getattr(trainer, name, None) for name in ("label_smoother", "compute_loss_func"))
    changed = (getattr(type(trainer), name) is not getattr(Trainer, name) for name in ("compute_loss", "training_step"))
    return any(found is not None for found in given) or any(changed)


def _counts_all_tokens(trainer: Trainer) -> bool:
    """Whether each process divides by the tokens of all, and the Trainer multiplies by their number afterwards."""
    shared = trainer.args.world_size > 1 and getattr(trainer.args, "average_tokens_across_devices", False)
    return bool(shared and getattr(trainer, "model_accepts_loss_kwargs", False))


def _targets(inputs: Any) -> Tensor | None:
    """The batch's whole-number labels, beside the outputs: those of a language model, which are its inputs, belong one
    further to the left."""
    labels = inputs.get("labels") if isinstance(inputs, Mapping) else None
    if not isinstance(labels, Tensor) or labels.dtype not in (torch.int16, torch.int32, torch.int64):
        return None
    tokens = inputs.get("input_ids")
    alike = isinstance(tokens, Tensor) and tokens.ndim == 2 and tokens.shape == labels.shape
    if not alike or "decoder_input_ids" in inputs:
        return labels
    same = ((tokens == labels) | (labels == _IGNORED)).all()
    return torch.where(same, F.pad(labels[:, 1:], (0, 1), value=_IGNORED), labels)
