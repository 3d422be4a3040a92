"""The step's loss: what the loop gave, else what the model returned."""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Real

import torch
from torch import Tensor

from stabmon.records import Site
from stabmon.taps import Due
from stabmon.taps.forward import Forward


class Loss:
    """`give` takes the loop's own loss; without one, the mean over what the model returned in the step."""

    name = "loss"

    def __init__(self, forward: Forward, device: torch.device) -> None:
        self._forward = forward
        self._device = device
        self._given: Tensor | float | None = None

    def columns(self) -> Sequence[tuple[str, Site]]:
        return [("loss", Site(""))]

    def give(self, loss: Tensor | float | None) -> None:
        """The finished step's loss; None leaves it to the model's output."""
        self._given = loss.detach() if isinstance(loss, Tensor) else loss

    def arm(self, due: Due) -> None:
        self._given = None

    def read(self) -> Tensor:
        loss = self._given
        if loss is None:
            found = self._forward.mean_loss()
            nothing = torch.full((1,), torch.nan, dtype=torch.float32, device=self._device) if found is None else found
            return nothing.to(self._device, non_blocking=True).reshape(1)
        if isinstance(loss, Tensor):
            value = loss.to(self._device, torch.float32, non_blocking=True).reshape(1)
            return torch.where(value.isfinite(), value, torch.inf)
        finite = float(loss) if math.isfinite(loss) else math.inf
        return torch.full((1,), finite, dtype=torch.float32, device=self._device)

    def weights(self) -> float:
        return 1.0

    def detach(self) -> None:
        self._given = None


def check(loss: object) -> None:
    """TypeError or ValueError unless `loss` is a number, a tensor with one element, or None."""
    advice = "give monitor.step() the scalar that you call .backward() on, such as loss.mean()"
    if isinstance(loss, Tensor):
        if loss.numel() != 1:
            raise ValueError(f"loss={tuple(loss.shape)}-shaped tensor: must have one element; {advice}")
        if loss.is_complex():
            raise ValueError(f"loss={loss.dtype} tensor: must be real; {advice}")
    elif loss is not None and (isinstance(loss, bool) or not isinstance(loss, Real)):  # numpy's numbers are real
        raise TypeError(f"loss={type(loss).__name__}: must be a tensor with one element or a number; {advice}")
