"""What a training runs on, to compare runs and to find the one that is in trouble: host, versions, device, sizes."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version

import torch
from torch import nn
from torch.nn import UninitializedParameter
from torch.optim import Optimizer

_PACKAGES = ("transformers", "accelerate", "lightning", "pytorch_lightning", "deepspeed")
"""Told where the program has them loaded."""


def surroundings(model: nn.Module, optimizers: Sequence[Optimizer]) -> dict[str, float | str]:
    """Asks nothing of the device but its name."""
    parameters = [p for p in model.parameters() if not isinstance(p, UninitializedParameter)]
    device = next((p.device for p in parameters), torch.device("cpu"))
    found: dict[str, float | str] = {
        "host": platform.node(),
        "process": str(os.getpid()),
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        **{name: known for name in _PACKAGES if name in sys.modules and (known := _version(name))},
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else device.type,
        "parameters": float(sum(p.numel() for p in parameters)),
        "trained": float(sum(p.numel() for p in parameters if p.requires_grad)),
        "weights": ", ".join(sorted({str(p.dtype).removeprefix("torch.") for p in parameters})),
        "optimizer": ", ".join(type(optimizer).__name__ for optimizer in optimizers),
    }
    return found


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""
