"""What passes between the modules of each block, in order, seen once: the residual stream is in it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from stabmon.taps.forward import in_backward
from stabmon.taps.hooks import spent
from stabmon.taps.probe.calls import Call, cut, shortest
from stabmon.taps.probe.undisturbed import undisturbed
from stabmon.taps.ranks.sharding import is_shared

_Do = Callable[..., None]
_NOTHING: Mapping[str, Any] = {}

SAMPLE = 1 << 15
"""Values of each tensor that are kept, from its start."""
_REPLAYED = 256
"""Tokens of a call that is repeated."""


@dataclass(frozen=True, slots=True)
class Point:
    """Where a hook sees a tensor: a module's first input, or its first output."""

    module: str
    output: bool


@dataclass
class Timeline:
    """One call of a block, and the first thing that happens after it."""

    block: str
    shape: torch.Size
    points: list[Point] = field(default_factory=list)
    """Every call's beginning and end."""
    seen: list[int] = field(default_factory=list)
    """Numbers of the points with as many tokens and features as the block's input has."""
    samples: list[Tensor] = field(default_factory=list)
    """Of those, float32; let go of when the call is over."""
    eps: float = 0.0
    """Relative distance of neighbouring numbers in the coarsest dtype among them."""
    same: Tensor | None = None
    """bool[seen, seen]: which are equal bit for bit."""
    gram: Tensor | None = None
    """float64[seen, seen]: scalar products of the samples."""

    def add(self, point: Point, value: Any) -> None:
        """The next point."""
        if isinstance(value, Tensor) and value.is_floating_point() and _alike(value.shape, self.shape):
            self.seen.append(len(self.points))
            self.samples.append(_sample(value))
            self.eps = max(self.eps, torch.finfo(value.dtype).eps)
        self.points.append(point)

    def close(self) -> None:
        """Nothing more will happen: compare the samples, on their device."""
        if self.samples:
            values = torch.stack([s.to(self.samples[0].device) for s in self.samples])
            wide = values.to(torch.float32 if values.device.type == "mps" else torch.float64)
            self.gram = wide @ wide.T
            self.same = torch.stack([(values == value).all(1) for value in values])
        self.samples.clear()


class Recorder:
    """Records each block's first call while `recording()`; attached before the first forward, detached after it."""

    def __init__(
        self,
        model: nn.Module,
        blocks: Sequence[str],
        recording: Callable[[], bool] = lambda: True,
        guard: Callable[[_Do], _Do] = lambda do: do,
    ) -> None:
        """`guard`: what a hook is wrapped into, so that it never raises into a training."""
        self.timelines: dict[str, Timeline] = {}
        self._blocks = frozenset(blocks)
        self._recording = recording
        self._open: Timeline | None = None
        self._over = False
        self._handles: list[RemovableHandle] = []
        for name, module in model.named_modules():
            if isinstance(module, nn.ModuleList | nn.ModuleDict):
                continue
            enter, leave = guard(self._entering(name)), guard(self._leaving(name))
            self._handles += [
                module.register_forward_pre_hook(enter, with_kwargs=True),
                module.register_forward_hook(leave),
            ]

    def finish(self) -> list[Timeline]:
        """All timelines, closed."""
        self._close()
        return list(self.timelines.values())

    def detach(self) -> None:
        """Remove the hooks; those of a module that is just being called may still fire."""
        self._recording = lambda: False
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def _entering(self, name: str) -> Callable[..., None]:
        def hook(module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any] = _NOTHING) -> None:
            if torch.compiler.is_compiling() or in_backward() or not self._recording():
                return
            with torch.no_grad(), spent:
                self._enter(name, first_tensor((*args, *kwargs.values())))

        return hook

    def _leaving(self, name: str) -> Callable[..., None]:
        def hook(module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
            if torch.compiler.is_compiling() or self._open is None or self._over or in_backward():
                return
            with torch.no_grad(), spent:
                self._open.add(Point(name, True), returned(output))
                self._over = name == self._open.block

        return hook

    def _enter(self, name: str, value: Tensor | None) -> None:
        if self._open is not None and self._over:
            self._open.add(Point(name, False), value)
            self._close()
        if self._open is None and name in self._blocks and name not in self.timelines and value is not None:
            self._open = self.timelines[name] = Timeline(name, value.shape)
        if self._open is not None:
            self._open.add(Point(name, False), value)

    def _close(self) -> None:
        if self._open is not None:
            self._open.close()
        self._open, self._over = None, False


def replayed(model: nn.Module, blocks: Sequence[str], call: Call | None) -> list[Timeline]:
    """The timelines of a call that is cut short and repeated eagerly, since compiled graphs are seen by no new hook.

    Empty where it cannot be repeated: there is none, or parameters are spread over ranks.
    """
    if call is None or any(is_shared(p) for p in model.parameters()):
        return []
    return shortest(call, _REPLAYED, lambda tokens: _recorded(model, blocks, cut(call, tokens)))


def _recorded(model: nn.Module, blocks: Sequence[str], call: Call) -> list[Timeline]:
    recorder = Recorder(model, blocks)
    try:
        with undisturbed(model, call.module), torch.no_grad():
            (call.module or model)(*call.args, **call.kwargs)
    finally:
        recorder.detach()
    return recorder.finish()


def first_tensor(values: Iterable[Any]) -> Tensor | None:
    """The first floating tensor."""
    return next((v for v in values if isinstance(v, Tensor) and v.is_floating_point()), None)


def returned(output: Any) -> Any:
    """What a module returns first."""
    return output[0] if isinstance(output, tuple | list) and output else output


def _alike(one: torch.Size, other: torch.Size) -> bool:
    return one[-1:] == other[-1:] and one.numel() == other.numel() > 0


def _sample(value: Tensor) -> Tensor:
    value = value.detach()
    while value.ndim > 1 and value[0].numel() >= SAMPLE:
        value = value[0]
    rows = -(-SAMPLE // value[:1].numel())
    return value[:rows].flatten()[:SAMPLE].to(torch.float32, copy=True)
