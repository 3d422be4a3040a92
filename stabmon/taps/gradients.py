"""Signal 3: gradients per block and in total, complete and before clipping."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import FrameType
from typing import Any

import torch
from torch import Tensor
from torch.amp import grad_scaler
from torch.autograd import Variable

from stabmon.records import Site
from stabmon.taps import Due
from stabmon.taps.groups import Groups
from stabmon.taps.hooks import Hook, spent


def _loss_scale() -> Tensor | None:
    """That of the GradScaler that is calling: it does not make itself known to the optimizer.

    Only its own frames' locals are looked at: those of a user's would be kept alive by looking (before Python 3.13).
    """
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if frame.f_code.co_filename == grad_scaler.__file__:
            scaler = frame.f_locals.get("self")
            return scaler._scale if isinstance(scaler, grad_scaler.GradScaler) else None
        frame = frame.f_back
    return None


class Gradients:
    """Reads `.grad` when a backward pass has ended, the last one of the step counting.

    The end is seen by a callback that the autograd engine runs after everything; it is queued once more from within
    itself because DDP and FSDP finish their reductions in callbacks of the same kind.
    """

    name = "gradients"

    def __init__(self, groups: Groups) -> None:
        self._groups = groups
        self._due = Due(layers=True)
        self._squares: Tensor | None = None
        self._error: Exception | None = None
        self._queued = self._of_backward = False
        hook = Hook(self._accumulated, self._fail)
        self._handles = [p.register_post_accumulate_grad_hook(hook) for p in groups.parameters if p.requires_grad]

    def columns(self) -> Sequence[tuple[str, Site]]:
        return [*(("grad_sq", site) for site in self._groups.sites), ("total_grad_sq", Site(""))]

    def arm(self, due: Due) -> None:
        self._due = due
        self._squares = None

    def before_step(self) -> None:
        """Called before the optimizer steps: where no backward's end was seen (compiled autograd), read here; what was
        read of a loss that a GradScaler had scaled is scaled back."""
        try:
            if self._squares is None:
                self._measure()
            elif self._of_backward and (scale := _loss_scale()) is not None:
                self._squares = self._squares / scale.to(self._squares.device, non_blocking=True).square()
            self._of_backward = False  # optimizers that call each other scale back once
        except Exception as error:  # it is not the caller's failure
            self._error = error

    def read(self) -> Tensor:
        if self._error is not None:
            raise self._error
        if self._squares is None:
            return torch.full((len(self._groups.sites) + 1,), torch.nan, device=self._groups.device)
        squares = self._squares
        total = squares.nan_to_num(0.0, posinf=torch.inf).sum().reshape(1)
        return torch.cat((squares if self._due.layers else torch.full_like(squares, torch.nan), total))

    def weights(self) -> float:
        return 1.0

    def detach(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        self._squares = None

    def _fail(self, error: Exception) -> None:
        self._error = error

    def _accumulated(self, parameter: Any) -> None:
        if self._queued or torch.compiler.is_compiling():
            return
        self._queued = True
        Variable._execution_engine.queue_callback(self._once_more)

    def _once_more(self) -> None:
        Variable._execution_engine.queue_callback(self._ended)

    def _ended(self) -> None:
        self._queued = False
        try:
            self._measure()
            self._of_backward = True
        except Exception as error:  # it would come out of the user's backward()
            self._error = error

    @torch.no_grad()
    def _measure(self) -> None:
        with spent:
            self._squares = self._groups.sum_of_squares([p.grad for p in self._groups.parameters])
