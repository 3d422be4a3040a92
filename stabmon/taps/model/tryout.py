"""What a norm layer that somebody wrote by hand does, found by giving a copy of it a few inputs."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

_SIZE = 8.0
"""Of the inputs, so that no usual epsilon counts."""
_WEIGHT = 3.0


@dataclass(frozen=True, slots=True)
class Behaviour:
    """How it normalises the one axis that it normalises."""

    axis: int
    """-1, or 1 where channels come first."""
    centred: bool
    offset: float
    """gamma_eff - weight: 0 or 1."""
    unit_length: bool
    """Divides by the length and not by the root mean square."""


@torch.no_grad()
def try_out(module: nn.Module, weight: Tensor | None, width: int | None) -> Behaviour | None:
    """None: it does not normalise along one axis. Raises what the module raises when it takes none of the inputs.

    `weight` is its gamma, `width` the size of the axis if known. Nothing of the module itself changes, no hook fires,
    random states stay.
    """
    copied = _copy(module)
    device = weight.device if weight is not None and weight.device.type != "meta" else torch.device("cpu")
    failure: Exception | None = None
    with torch.random.fork_rng(devices=[]):
        for shape, axis in _shapes(weight, width):
            random = torch.Generator().manual_seed(0)
            x = _SIZE * torch.randn(shape, generator=random, dtype=torch.float32, device="cpu").to(device)
            try:
                return _examine(copied, x, axis, weight is not None)
            except _Other as other:
                failure = failure or other
            except Exception as error:  # it is the user's code, given what it may not be made for
                failure = error
    if isinstance(failure, _Other):
        return None
    raise failure or ValueError("takes no input that was tried")


class _Other(Exception):
    """Took the input, and did not normalise this axis."""


def _copy(module: nn.Module) -> nn.Module:
    """With all parameters at known values: gammas 3, whatever else 0. Buffers are copies: some write to theirs."""
    copied = copy.copy(module)
    first = True
    parameters: dict[str, nn.Parameter | None] = {}
    for name, held in module._parameters.items():
        value = _WEIGHT if first else 0.0
        parameters[name] = None if held is None else _like(held, value)
        first = first and held is None
    vars(copied)["_parameters"] = parameters
    vars(copied)["_buffers"] = {n: None if b is None else b.detach().clone() for n, b in module._buffers.items()}
    return copied


def _like(held: Tensor, value: float) -> nn.Parameter:
    device = torch.device("cpu") if held.device.type == "meta" else held.device
    return nn.Parameter(torch.full(held.shape, value, dtype=torch.float32, device=device))


def _shapes(weight: Tensor | None, width: int | None) -> Iterator[tuple[tuple[int, ...], int]]:
    """Inputs to try, with the axis that would be normalised."""
    if weight is not None and weight.ndim == 2:
        yield (2, 5, *weight.shape), -1
    size = width or 16
    yield (2, 5, size), -1
    yield (2, size, 3, 4), 1
    yield (2, size, 5), 1
    yield (2, 5, 3, size), -1


def _examine(module: nn.Module, x: Tensor, axis: int, weighted: bool) -> Behaviour:
    y = _call(module, x)
    within = 0.01 * float(y.abs().max())
    if within == 0 or not _close(_call(module, 2 * x), y, within):
        raise _Other("does not normalise")
    for dim in range(x.ndim):
        scaled = x.clone()
        scaled.select(dim, 0).mul_(10)
        coupled = not _close(_call(module, scaled).select(dim, 1), y.select(dim, 1), within)
        if coupled != (dim == axis % x.ndim):
            raise _Other("normalises other axes")
    centred = _close(_call(module, x + 4 * _SIZE), y, 10 * within)
    unit = x - x.mean(axis, keepdim=True) if centred else x
    unit = unit / unit.square().mean(axis, keepdim=True).sqrt()
    gamma = float((y * unit).mean() / unit.square().mean())
    by_length = gamma * x.shape[axis] ** 0.5
    expected = _WEIGHT if weighted else 1.0
    unit_length = abs(by_length - expected) < 0.1 < abs(gamma - expected)
    offset = 1.0 if weighted and abs(gamma - expected - 1) < 0.1 else 0.0
    return Behaviour(axis, centred, offset, unit_length)


def _call(module: nn.Module, x: Tensor) -> Tensor:
    # `forward`, not a call: nobody's hooks are to see this input.
    y = type(module).forward(module, x)
    if not isinstance(y, Tensor) or y.shape != x.shape:
        raise ValueError("does not return one tensor of its input's shape")
    return y.float()


def _close(a: Tensor, b: Tensor, within: float) -> bool:
    return bool((a - b).abs().max() < within)
