"""Counts the moments at which stabmon makes the host wait for the device."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

_HOME = Path(__file__).parent.parent
_PACK = str(_HOME / "taps" / "pack.py")
_aten = torch.ops.aten
# What reads a value or a size off the device. `.item()`, `float()`, `bool()` and `if tensor:` are all the first.
_OPERATORS = {
    _aten._local_scalar_dense.default,
    _aten.equal.default,
    _aten.nonzero.default,
    _aten.masked_select.default,
    _aten._unique2.default,
    _aten.repeat_interleave.Tensor,
}
# These read memory of the CPU without an operator; on a device they wait for a copy.
_METHODS = {Tensor.tolist, Tensor.numpy, Tensor.cpu, Tensor.__array__}


class Waits:
    """How many so far, of stabmon's own; what the training does by itself is not counted."""

    def __init__(self) -> None:
        self.count = 0

    def seen(self, *_: Any, **__: Any) -> None:
        """A wait happens now: count it if stabmon is what called it."""
        self.count += _within_stabmon()


@contextmanager
def counting(device: torch.device) -> Iterator[Waits]:
    """Counts while it is open. On CUDA by its own sync debug mode; elsewhere by the calls that would wait there."""
    waits = Waits()
    with _cuda(device, waits.seen) if device.type == "cuda" else _elsewhere(waits.seen):
        yield waits


@contextmanager
def _cuda(device: torch.device, seen: Callable[..., None]) -> Iterator[None]:
    before = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = seen
        torch.cuda.set_sync_debug_mode("warn")
        try:
            yield
        finally:
            torch.cuda.set_sync_debug_mode(before)


@contextmanager
def _elsewhere(seen: Callable[..., None]) -> Iterator[None]:
    with _Methods(seen), _Operators(seen):
        yield


class _Operators(TorchDispatchMode):
    def __init__(self, seen: Callable[..., None]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._seen = seen

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in _OPERATORS or (func is _aten.index.Tensor and any(_is_mask(index) for index in args[1])):
            self._seen()
        return func(*args, **(kwargs or {}))


class _Methods(TorchFunctionMode):
    def __init__(self, seen: Callable[..., None]) -> None:
        super().__init__()
        self._seen = seen

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        # Pack reads rows that have arrived, and asks before it does.
        if func in _METHODS and not _called_by(_PACK):
            self._seen()
        return func(*args, **(kwargs or {}))


def _is_mask(index: Tensor | None) -> bool:
    return index is not None and index.dtype in (torch.bool, torch.uint8)


def _within_stabmon() -> bool:
    """Whether the nearest file of the package on the stack is another than this part's, which is the training."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        file = Path(frame.f_code.co_filename)
        if file.is_relative_to(_HOME) and file != Path(__file__):
            return not file.is_relative_to(_HOME / "bench")
        frame = frame.f_back
    return False


def _called_by(file: str) -> bool:
    return sys._getframe(2).f_code.co_filename == file
