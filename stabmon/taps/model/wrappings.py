"""The network and the optimizers themselves, inside what others wrapped around them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import nn
from torch.optim import Optimizer

_WRAPPED = ("_orig_mod", "_original_module")
"""Where torch.compile and Fabric keep the network."""
_PARALLEL = (nn.parallel.DistributedDataParallel, nn.DataParallel)


def unwrap(model: nn.Module) -> nn.Module:
    """The network itself: what torch.compile, Fabric and DistributedDataParallel wrap."""
    return wrappings(model)[-1]


def wrappings(model: nn.Module) -> list[nn.Module]:
    """The model, what it wraps, what that wraps …"""
    found = [model]
    while (inner := _wrapped(found[-1])) is not None:
        found.append(inner)
    return found


def _wrapped(model: nn.Module) -> nn.Module | None:
    names = [*_WRAPPED, "module"] if isinstance(model, _PARALLEL) else _WRAPPED
    found = (getattr(model, name, None) for name in names)
    return next((inner for inner in found if isinstance(inner, nn.Module)), None)


def optimizers_of(given: Optimizer | Sequence[Optimizer]) -> list[Optimizer]:
    """The torch optimizers themselves: wrappers (Accelerate's, SAM) do not pass hooks on, and one that stands for many
    (transformers' of layerwise GaLore) takes no step."""
    found = []
    for optimizer in given if isinstance(given, list | tuple) else [given]:
        inner: Any = optimizer
        while (inner := _inside(inner)) is not None:  # DeepSpeed's own is no torch Optimizer
            optimizer = inner if isinstance(inner, Optimizer) else optimizer
        if not isinstance(optimizer, Optimizer):
            raise TypeError(f"optimizer={type(optimizer).__name__}: must be a torch.optim.Optimizer, or a list of them")
        found += _stood_for(optimizer) or [optimizer]
    if not found:
        raise ValueError("optimizer=[]: must hold at least one optimizer; pass the one that trains the model")
    return found


def _inside(optimizer: Any) -> Any:
    """What it wraps: by the name that most give it, else the optimizer whose parameter groups it shares."""
    if (named := getattr(optimizer, "optimizer", None)) is not None:
        return named
    others = [held for held in getattr(optimizer, "__dict__", {}).values() if held is not optimizer]
    groups = getattr(optimizer, "param_groups", None)
    return next((held for held in others if isinstance(held, Optimizer) and held.param_groups is groups), None)


def _stood_for(optimizer: Optimizer) -> list[Optimizer]:
    """Those that it holds in a list, or by parameter."""
    for held in vars(optimizer).values():
        several = list(held.values() if isinstance(held, Mapping) else held) if isinstance(held, Mapping | list) else []
        if several and all(isinstance(one, Optimizer) for one in several):
            return several
    return []
