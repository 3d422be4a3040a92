"""The probe: one training call of the model, cut short, replayed with any parameter values and no trace left."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass, fields, is_dataclass
from inspect import Signature
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from stabmon.taps.undisturbed import device_of, undisturbed

IGNORE_INDEX = -100
FULL_PRECISION = (torch.float32, torch.float64)
# What carries state from call to call, or scales the loss by tokens that are not in the probe.
_DROPPED = ("num_items_in_batch", "past_key_values", "past_key_value", "cache_params", "mems", "use_cache")


@dataclass(frozen=True)
class Call:
    """A captured training call of the root module."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    module: nn.Module | None = None
    """The module that was called, where that is a part of the model and not all of it."""

    def map(self, change: Callable[[Tensor], Tensor]) -> Call:
        """The same call with every tensor changed, also inside tuples, lists and mappings."""
        args, kwargs = _map(change, self.args), _map(change, self.kwargs)
        return Call(args, kwargs, self.module)


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
        batch, time = _grid([*tensors_in(call.args), *tensors_in(call.kwargs)])
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
    batch, time = _grid([*tensors_in(call.args), *tensors_in(call.kwargs)])
    return min(512, max(128, batch * time // 32))


def cut(call: Call, max_tokens: int = 512, signature: Signature | None = None) -> Call:
    """Copies of the call's first sequences, at most `max_tokens` in all, at least one sequence (cut in time if longer).

    Labels stay, caches go; `signature` is that of the forward. What is not a tensor is kept by reference.
    """
    kept = Call(call.args, {k: v for k, v in call.kwargs.items() if k not in _DROPPED}, call.module)
    part = kept.map(Window.of(kept, max_tokens).cut)
    if signature is not None and "use_cache" in signature.parameters:
        part.kwargs["use_cache"] = False
    return part


def cut_targets(targets: Tensor, call: Call, max_tokens: int = 512) -> Tensor:
    """The same cut of targets that came beside the call: [B, T], [B] or flattened [B*T]. `call` is the uncut one."""
    window = Window.of(call, max_tokens)
    if targets.ndim == 1 and window.time > 1 and targets.numel() == window.batch * window.time:
        targets = targets.reshape(window.batch, window.time)
    return window.cut(targets)


@dataclass(frozen=True, slots=True)
class Output:
    """What the model said of the probe, free of the graph."""

    logits: Tensor | None
    """[positions, V], minus their mean over V, at least float32. None: the model returns nothing of that shape."""
    loss: Tensor | None
    """Scalar: the model's own loss, else cross entropy with the given targets, else None."""
    slope: Tensor | None
    """Scalar: gradient of the loss times (toward - parameters). None without a loss or a `toward`, or under
    re-entrant checkpointing."""
    exact: bool
    """Whether parameters and logits are at least float32; otherwise a difference of outputs is mostly rounding."""


class Probe:
    """The model on a fixed call, in eval mode and full precision, at whatever parameter values are asked for.

    The model's parameters, gradients, buffers and attributes and all random states stay as they are, also when the
    forward raises. Forward hooks fire.
    """

    def __init__(self, model: nn.Module, call: Call, targets: Tensor | None = None) -> None:
        self._model = model
        self._precise = all(p.dtype in FULL_PRECISION for p in model.parameters())
        # Inputs of a run under autocast may be halves, which float32 weights refuse without it.
        self._call = call.map(_widened) if self._precise else call
        self._targets = targets

    @property
    def supervised(self) -> Tensor:
        """Scalar bool: whether any label of the probe counts; the loss over none is not a number."""
        labels = self._call.kwargs.get("labels", self._targets)
        if isinstance(labels, Tensor) and not labels.is_floating_point():
            return (labels != IGNORE_INDEX).any()
        return torch.ones((), dtype=torch.bool, device=device_of(self._model))

    def __call__(self, parameters: Mapping[str, Tensor], toward: Mapping[str, Tensor] | None = None) -> Output:
        """The output at these values (the model's own where a name is missing), and the slope towards other values.

        Always with a graph: without one some kernels round differently, and a difference of outputs would show it.
        """
        leaves = {name: value.detach().requires_grad_() for name, value in parameters.items()}
        swapped = {f"model.{name}": value for name, value in leaves.items()}
        swapped |= {f"model.{name}": buffer.clone() for name, buffer in self._model.named_buffers()}
        root = _Root(self._model, lambda: self._evaluate(leaves, toward))
        with undisturbed(self._model, self._call.module), torch.enable_grad():
            output: Output = torch.func.functional_call(root, swapped, ())
        return output

    def _evaluate(self, leaves: Mapping[str, Tensor], toward: Mapping[str, Tensor] | None) -> Output:
        returned = (self._call.module or self._model)(*self._call.args, **self._call.kwargs)
        logits, loss = _logits(returned), self._loss(returned)
        return Output(
            logits=None if logits is None else _centred(logits),
            loss=None if loss is None else loss.detach(),
            slope=None if loss is None or toward is None else _slope(loss, leaves, toward),
            exact=self._precise and (logits is None or logits.dtype in FULL_PRECISION),
        )

    def _loss(self, returned: Any) -> Tensor | None:
        logits = _logits(returned)
        given = None if logits is None or self._targets is None else _cross_entropy(logits, self._targets)
        # The targets that the loop gave are surer than an unnamed scalar, which may be a part of a loss.
        return _loss(returned) if given is None or _named(returned, "loss") is not None else given


class _Root(nn.Module):
    """Takes the gradient while the parameters are swapped in: a backward that recomputes forwards needs them."""

    def __init__(self, model: nn.Module, evaluate: Callable[[], Output]) -> None:
        super().__init__()
        self.model = model
        self._evaluate = evaluate

    def forward(self) -> Output:
        return self._evaluate()


def _slope(loss: Tensor, leaves: Mapping[str, Tensor], toward: Mapping[str, Tensor]) -> Tensor | None:
    if not (leaves and loss.requires_grad):
        return None
    try:
        gradients = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True)
    except RuntimeError as error:
        # Re-entrant checkpointing allows `backward` alone, which would add to the model's own gradients.
        if "checkpoint" not in str(error).lower():
            raise
        return None
    parts = [
        (gradient * (toward[name].detach() - leaf.detach())).sum().to(loss.device)
        for gradient, (name, leaf) in zip(gradients, leaves.items(), strict=True)
        if gradient is not None
    ]
    return torch.stack(parts).sum() if parts else None


def _centred(logits: Tensor) -> Tensor:
    logits = logits.detach().reshape(-1, logits.shape[-1])
    logits = logits if logits.dtype in FULL_PRECISION else logits.float()
    return logits - logits.mean(-1, keepdim=True)


def _cross_entropy(logits: Tensor, targets: Tensor) -> Tensor | None:
    """Mean over the positions; None where targets and logits [..., V] do not belong together."""
    flat = logits.reshape(-1, logits.shape[-1])
    flattened = targets.numel() == len(flat) and (targets.ndim == 1 or logits.ndim == 2)
    if targets.is_floating_point() or not (flattened or targets.shape == logits.shape[:-1]):
        return None
    return F.cross_entropy(flat.to(torch.promote_types(flat.dtype, torch.float32)), targets.reshape(-1).long())


def _logits(returned: Any) -> Tensor | None:
    named = _named(returned, "logits")
    return next(
        (t for t in tensors_in((named, returned)) if t.is_floating_point() and t.ndim > 1 and t.shape[-1] > 1), None
    )


def _loss(returned: Any) -> Tensor | None:
    named = _named(returned, "loss")
    # A mapping's unnamed scalars may be parts of a loss; a tuple's first one is the loss (HF tuples, nanoGPT).
    found = (named,) if named is not None or isinstance(returned, Mapping) else returned
    scalars = (t for t in tensors_in(found) if t.is_floating_point() and t.ndim < 2 and t.numel() == 1)
    return next((t.reshape(()) for t in scalars), None)


def _named(returned: Any, name: str) -> Any:
    return returned.get(name) if isinstance(returned, Mapping) else getattr(returned, name, None)


def _widened(tensor: Tensor) -> Tensor:
    return tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor


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
