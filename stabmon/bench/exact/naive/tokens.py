"""Which tokens count in a mean."""

from __future__ import annotations

import torch
from torch import Tensor

from stabmon.bench.exact.twin import Call, Twin


def counting(twin: Twin, call: Call, module: str, x: Tensor, rows: int) -> Tensor:
    """bool[rows]: all of them."""
    return torch.ones(rows, dtype=torch.bool)
