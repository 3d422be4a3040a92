"""One forward, followed tensor by tensor: which sums each norm layer's input and output take part in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from stabmon.taps.model.anatomy import is_norm
from stabmon.taps.probe.calls import Call, tensors_in
from stabmon.taps.probe.swapped import swapped
from stabmon.taps.probe.undisturbed import undisturbed

_SAME = ("_to_copy", "clone", "contiguous", "native_dropout")
"""What returns its input, in another form at most."""
_FUNCTIONS = {
    F.layer_norm: "layer_norm",
    F.group_norm: "group_norm",
    F.batch_norm: "batch_norm",
    F.instance_norm: "instance_norm",
    torch.layer_norm: "layer_norm",
    torch.group_norm: "group_norm",
    torch.batch_norm: "batch_norm",
    torch.instance_norm: "instance_norm",
    F.rms_norm: "rms_norm",
    torch.rms_norm: "rms_norm",
}


@dataclass(frozen=True, slots=True)
class NormCall:
    """A norm layer was called; tensors go by number, which a view, a cast or a scaled copy shares."""

    name: str
    block: str | None
    x: int
    y: int


@dataclass(frozen=True, slots=True)
class Sum:
    """Two tensors of one shape were added."""

    terms: tuple[int, int]
    out: int
    block: str | None


@dataclass
class Trace:
    """What was seen, in order."""

    norms: list[NormCall] = field(default_factory=list)
    sums: list[Sum] = field(default_factory=list)
    used: set[int] = field(default_factory=set)
    """Tensors that went into anything but sums."""
    functional: set[str] = field(default_factory=set)
    """Modules that normalise by a function of torch's and not by a layer, as "name (function)"."""


def trace(model: nn.Module, call: Call, norms: Sequence[str], blocks: Sequence[str]) -> Trace:
    """Follow one eager forward in eval mode without gradients. The model is left as it was; hooks of others fire."""
    found = Trace()
    where = _Where(found, frozenset(norms), frozenset(blocks))
    buffers = {id(buffer): buffer.clone() for buffer in model.buffers()}
    with torch.no_grad(), undisturbed(model, call.module), where.watching(model), _Functions(where), where.tensors:
        swapped(model, buffers, lambda: call(model))
    return found


class _Where:
    """Keeps track of the modules that are running."""

    def __init__(self, found: Trace, norms: frozenset[str], blocks: frozenset[str]) -> None:
        self.found = found
        self._norms = norms
        self._blocks = blocks
        self._running: list[tuple[str, nn.Module]] = []
        self._inputs: list[int] = []
        self.tensors = _Tensors(self)

    @property
    def block(self) -> str | None:
        return next((name for name, _ in reversed(self._running) if name in self._blocks), None)

    @contextmanager
    def watching(self, model: nn.Module) -> Iterator[None]:
        handles = []
        try:
            for name, module in model.named_modules():
                enter, leave = self._enter(name), self._leave(name)
                handles.append(module.register_forward_pre_hook(enter, with_kwargs=True))
                handles.append(module.register_forward_hook(leave))
            yield
        finally:
            for handle in handles:
                handle.remove()

    def called(self, function: str) -> None:
        """A normalising function; inside a norm layer it is that layer's own."""
        name, module = self._running[-1] if self._running else ("", None)
        if module is None or not is_norm(module):
            self.found.functional.add(f"{name or 'the model'} ({function})")

    def _enter(self, name: str) -> Any:
        def hook(module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
            self._running.append((name, module))
            if name in self._norms:
                x = next(tensors_in((args, dict(kwargs))), None)
                self._inputs.append(-1 if x is None else self.tensors.number(x))

        return hook

    def _leave(self, name: str) -> Any:
        def hook(module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
            self._running.pop()
            if name in self._norms:
                y = next(tensors_in(output), None)
                number = -1 if y is None else self.tensors.number(y)
                self.found.norms.append(NormCall(name, self.block, self._inputs.pop(), number))

        return hook


class _Functions(TorchFunctionMode):
    def __init__(self, where: _Where) -> None:
        super().__init__()
        self._where = where

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in _FUNCTIONS:
            self._where.called(_FUNCTIONS[func])
        return func(*args, **(kwargs or {}))


class _Tensors(TorchDispatchMode):
    """Numbers tensors by where their contents lie, and notes sums."""

    def __init__(self, where: _Where) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._where = where
        self._numbers: dict[tuple[int, int, int], int] = {}
        self._kept: list[Tensor] = []
        """So that no memory is used again for another tensor."""
        self._last = 0

    def number(self, tensor: Tensor) -> int:
        place = _place(tensor)
        if place not in self._numbers:
            self._new(tensor)
        return self._numbers[place]

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name, given = func.overloadpacket.__name__, [t for t in tensors_in(args) if t.numel()]
        numbers = [self.number(t) for t in given]
        places = {t.untyped_storage().data_ptr() for t in given}
        out = func(*args, **(kwargs or {}))
        made = next((t for t in tensors_in(out) if t.numel()), None)
        if made is None:
            return out
        inplace = name.endswith("_") and not name.endswith("__")
        if name.rstrip("_") == "add" and len(given) == 2 and given[0].shape == given[1].shape == made.shape:
            number = self._new(made)
            self._where.found.sums.append(Sum((numbers[0], numbers[1]), number, self._where.block))
        elif name in _SAME or (name.rstrip("_") in ("mul", "div") and _scaled(args)):
            self._kept.append(made)
            self._numbers[_place(made)] = numbers[0]
        elif inplace or made.untyped_storage().data_ptr() not in places:  # else a view
            self._where.found.used.update(numbers)
            self._new(made)
        return out

    def _new(self, tensor: Tensor) -> int:
        self._last += 1
        self._kept.append(tensor)
        self._numbers[_place(tensor)] = self._last
        return self._last


def _scaled(args: Sequence[Any]) -> bool:
    """Whether the second factor is one number."""
    other = args[1]
    return isinstance(args[0], Tensor) and (not isinstance(other, Tensor) or other.numel() == 1 < args[0].numel())


def _place(tensor: Tensor) -> tuple[int, int, int]:
    return tensor.untyped_storage().data_ptr(), int(tensor.storage_offset()), tensor.numel()
