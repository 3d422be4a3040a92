"""timm, and with it transformers, imports torchvision, whose compiled part does not load beside another build of torch.

Nothing here calls that part; its names must be known when torchvision is imported.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import torch

_OPERATORS = ("nms", "qnms")


def declare() -> torch.library.Library | None:
    """The names of torchvision's operators, known as long as this is held; None where they are there already."""
    spec = find_spec("torchvision")
    if spec is None or spec.origin is None:
        return None
    try:
        torch.ops.load_library(next(Path(spec.origin).parent.glob("_C*.so")))
    except (OSError, StopIteration):
        library = torch.library.Library("torchvision", "DEF")
        for name in _OPERATORS:
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        return library
    return None
