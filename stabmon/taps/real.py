"""Complex numbers as the pairs of real ones that gradients and optimizers take them for."""

from __future__ import annotations

import torch
from torch import Tensor


def real(tensor: Tensor) -> Tensor:
    """With one dimension more, of 2, where it is complex."""
    return torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor
