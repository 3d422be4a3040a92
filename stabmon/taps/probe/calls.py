"""Calls of a model: what it was given, and the part of it that is short enough to be replayed."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass, fields, is_dataclass, replace
from inspect import Signature
from typing import Any, TypeVar

from torch import Tensor, nn

# What carries state from call to call, scales the loss by tokens that are not in the probe, or has TRL's models return
# log-probabilities of the labels in place of the logits.
_DROPPED = (
    "num_items_in_batch", "past_key_values", "past_key_value", "cache_params", "mems", "use_cache", "fused_lm_head",
)  # fmt: skip


FEW = 8192
"""Tokens of a call that may be made again as a whole."""

_T = TypeVar("_T")


@dataclass(frozen=True)
class Call:
    """A training call of the root module, or a batch and the function that calls the model for it."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    module: nn.Module | None = None
    """The module that was called, where that is a part of the model and not all of it."""
    forward: Callable[..., Any] | None = None
    """Called with the model before the arguments, in place of it."""

    def __call__(self, model: nn.Module) -> Any:
        """What the model returns."""
        if self.forward is not None:
            return self.forward(model, *self.args, **self.kwargs)
        return (self.module or model)(*self.args, **self.kwargs)

    def map(self, change: Callable[[Tensor], Tensor]) -> Call:
        """The same call with every tensor changed, also inside tuples, lists and mappings."""
        args, kwargs = _map(change, self.args), _map(change, self.kwargs)
        return Call(args, kwargs, self.module, self.forward)

    def named(self, name: str) -> Tensor | None:
        """The tensor given by that name, as an argument or in a mapping that is one."""
        found = (given.get(name) for given in (self.kwargs, *self.args) if isinstance(given, Mapping))
        return next((value for value in found if isinstance(value, Tensor)), None)

    @property
    def tensors(self) -> list[Tensor]:
        """Every tensor given."""
        return [*tensors_in(self.args), *tensors_in(self.kwargs)]


@dataclass(frozen=True, slots=True)
class Window:
    """The part of a batch that the probe keeps: whole sequences, or the start of one that is longer than allowed."""

    batch: int
    time: int
    sequences: int
    steps: int

    @staticmethod
    def of(call: Call, max_tokens: int) -> Window:
        """Batch and time are the sizes of the first integer [B, T], else of the first [B, T, D], else time is 1."""
        batch, time = _grid(call.tensors)
        return Window(batch, time, min(batch, max(1, max_tokens // max(1, time))), min(time, max_tokens))

    def cut(self, tensor: Tensor) -> Tensor:
        """A copy of the tensor's part: of its first dimension if that is the batch, of those as long as the time."""
        batched = tensor.ndim > 0 and tensor.shape[0] == self.batch
        if batched:
            tensor = tensor[: self.sequences]
        if self.steps < self.time:
            # [B, T, D] has its time in dimension 1 only, though D may equal T; a mask may be [B, 1, T, T].
            embedded = batched and tensor.ndim == 3 and tensor.is_floating_point()
            for dim in (1,) if embedded else range(int(batched), tensor.ndim):
                if tensor.shape[dim] == self.time:
                    tensor = tensor.narrow(dim, 0, self.steps)
        return tensor.detach().clone()


def affordable(call: Call) -> int:
    """Tokens of a probe that costs about 1/24 of a training step: 1/32 of the call's, at least 128, at most 512.

    A probe takes two forwards and one backward, 4/3 of what a step takes for as many tokens.
    """
    batch, time = _grid(call.tensors)
    return min(512, max(128, batch * time // 32))


def cut(call: Call, max_tokens: int = 512, signature: Signature | None = None) -> Call:
    """Copies of the call's first sequences, at most `max_tokens` in all, at least one sequence (cut in time if longer).

    Labels stay, caches go; `signature` is that of the forward. What is not a tensor is kept by reference.
    """
    kept = replace(call, kwargs={k: v for k, v in call.kwargs.items() if k not in _DROPPED})
    part = kept.map(Window.of(kept, max_tokens).cut)
    if signature is not None and "use_cache" in signature.parameters:
        part.kwargs["use_cache"] = False
    return part


def shortest(call: Call, max_tokens: int, do: Callable[[int], _T]) -> _T:
    """What `do` returns for so many tokens of the call; where that fails, for all, if they are few: a model that
    carries a state from batch to batch takes batches of one size alone. Raises what it then raises."""
    batch, time = _grid(call.tensors)
    try:
        return do(max_tokens)
    except Exception:  # it is the user's code, given what it may not be made for
        if not max_tokens < batch * time <= FEW:
            raise
    return do(FEW)


def cut_targets(targets: Tensor, call: Call, max_tokens: int = 512) -> Tensor:
    """The same cut of targets that came beside the call: [B, T], [B] or flattened [B*T]. `call` is the uncut one."""
    window = Window.of(call, max_tokens)
    if targets.ndim == 1 and window.time > 1 and targets.numel() == window.batch * window.time:
        targets = targets.reshape(window.batch, window.time)
    return window.cut(targets)


def _grid(tensors: list[Tensor]) -> tuple[int, int]:
    whole = [t for t in tensors if not t.is_floating_point() and t.ndim == 2]
    embedded = [t for t in tensors if t.is_floating_point() and t.ndim == 3]
    for tensor in (*whole, *embedded):
        return tensor.shape[0], tensor.shape[1]
    return next((t.shape[0] for t in tensors if t.ndim), 1), 1


def tensors_in(value: Any) -> Iterator[Tensor]:
    """All tensors in tuples, lists, mappings and dataclasses."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping):
        yield from tensors_in(tuple(value.values()))
    elif isinstance(value, tuple | list):
        for item in value:
            yield from tensors_in(item)
    elif is_dataclass(value) and not isinstance(value, type):
        yield from tensors_in(tuple(getattr(value, field.name) for field in fields(value)))


def _map(change: Callable[[Tensor], Tensor], value: Any) -> Any:
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, MutableMapping):
        same = copy.copy(value)  # keeps the type, which may be a BatchEncoding
        same.update({key: _map(change, item) for key, item in value.items()})
        return same
    if isinstance(value, tuple | list):
        items = [_map(change, item) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    return value
