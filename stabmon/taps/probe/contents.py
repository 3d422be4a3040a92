"""What modules hold in attributes of their own and change in place: put back after a forward that is no training."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from operator import is_
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

_MODULE = frozenset(vars(nn.Module()))
"""Attributes that every module has."""
_LARGEST = 1 << 20
"""Elements of an array that is copied; a larger one is a table or a cache, which no forward counts in."""
_LONGEST = 1000
"""Entries of a container that is looked into; a longer one is a memory, such as an agent's, whose entries stay."""

_CONTAINERS = (list, dict, set, deque)
_RANDOM = (torch.Generator, np.random.Generator, np.random.RandomState, random.Random)
_WALKED = (Tensor, np.ndarray, tuple, *_CONTAINERS, *_RANDOM)

Restore = Callable[[], object]


@contextmanager
def contents_kept(model: nn.Module) -> Iterator[None]:
    """Losses gathered in a list, a metric's sums, a counter, a random generator's state; nested ones too."""
    restores = list(_restores(model))
    try:
        yield
    finally:
        for restore in restores:
            restore()


def _restores(model: nn.Module) -> Iterator[Restore]:
    """What puts back each thing that is found."""
    left = [v for m in model.modules() for name, v in vars(m).items() if name not in _MODULE]
    seen: set[int] = set()
    while left:
        value = left.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, _RANDOM):
            yield _generator(value)
        elif isinstance(value, Tensor):
            yield from _tensor(value)
        elif isinstance(value, np.ndarray):
            yield from _array(value)
        elif isinstance(value, _CONTAINERS):
            yield _container(value)
            left += [v for v in _entries(value) if isinstance(v, _WALKED)] if len(value) <= _LONGEST else []
        elif isinstance(value, tuple):
            left += value
        else:  # of other objects, such as one that masks inputs, what they draw from alone
            left += [v for v in list(getattr(value, "__dict__", {}).values()) if isinstance(v, _RANDOM)]


def _entries(held: Any) -> list[Any]:
    return [*held, *held.values()] if isinstance(held, dict) else list(held)


def _container(held: Any) -> Restore:
    before = _entries(held)
    contents = dict(held) if isinstance(held, dict) else before

    def restore() -> None:
        now = _entries(held)
        if len(now) != len(before) or not all(map(is_, now, before)):
            held.clear()
            (held.update if isinstance(held, dict | set) else held.extend)(contents)

    return restore


def _tensor(held: Tensor) -> Iterable[Restore]:
    """One that a graph made is bound anew by the next forward, and the model's own parameters are swapped."""
    if isinstance(held, nn.Parameter) or held.grad_fn is not None or held.is_inference() or held.numel() > _LARGEST:
        return ()
    version, before = held._version, held.detach().clone()

    def restore() -> None:
        if held._version != version:
            with torch.no_grad():
                held.detach().copy_(before)

    return (restore,)


def _array(held: np.ndarray[Any, Any]) -> Iterable[Restore]:
    if not held.flags.writeable or held.size > _LARGEST:
        return ()
    before = held.copy()

    def restore() -> None:
        held[...] = before

    return (restore,)


def _generator(held: Any) -> Restore:
    if isinstance(held, np.random.Generator):
        bits, state = held.bit_generator, held.bit_generator.state
        return lambda: setattr(bits, "state", state)
    if isinstance(held, random.Random):
        before = held.getstate()
        return lambda: held.setstate(before)
    kept = held.get_state()
    return lambda: held.set_state(kept)
