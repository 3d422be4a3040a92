"""The twin: the same training, unwatched by stabmon, in a loop of the bench's own that keeps everything.

What it keeps is all that the naive computations know. Its hooks and its loop share nothing with the taps.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from stabmon.bench.exact.attention import AttentionCall, AttentionSpy
from stabmon.bench.exact.families import Batch, Kind
from stabmon.bench.exact.plan import CLIP, OVERFLOW, SEED, Plan, schedule

Tensors = Mapping[str, Tensor]
Kept = TypeVar("Kept")


@dataclass(eq=False)
class Call:
    """One training forward of the model."""

    batch: Batch
    inputs: dict[str, list[tuple[tuple[Any, ...], dict[str, Any]]]] = field(default_factory=dict)
    """Module -> arguments and keywords of each of its calls."""
    outputs: dict[str, list[Any]] = field(default_factory=dict)
    """Module -> what each of its calls returned."""
    attention: list[AttentionCall] = field(default_factory=list)

    def into(self, module: str) -> list[Tensor]:
        """The first tensor of each of a module's calls."""
        found = [(*args, *kwargs.values()) for args, kwargs in self.inputs.get(module, [])]
        return [next(value for value in values if isinstance(value, Tensor)) for values in found]

    def out_of(self, module: str) -> list[Tensor]:
        """The first tensor that each of a module's calls returned."""
        found = self.outputs.get(module, [])
        return [value if isinstance(value, Tensor) else next(iter(value)) for value in found]


@dataclass
class Step:
    """One optimizer step."""

    number: int
    calls: list[Call]
    gradients: Tensors
    """Before clipping, at the scale of the loss itself."""
    used: Tensors
    """What the optimizer stepped with."""
    before: Tensors
    """Parameters before the step."""
    after: Tensors
    buffers: Tensors
    """After the step."""
    state: Mapping[str, Mapping[str, Any]]
    """The optimizer's state of each parameter after the step."""
    loss: float
    rate: float
    skipped: bool
    eval_loss: float
    """Of an evaluation between the step before and this one; NaN: there was none."""


@dataclass
class Twin:
    """A whole training."""

    plan: Plan
    model: nn.Module
    """As it is after the last step."""
    steps: list[Step]
    _kept: dict[Hashable, Any] = field(default_factory=dict)

    def once(self, key: Hashable, work: Callable[[], Kept]) -> Kept:
        """What several statistics need, worked out once."""
        if key not in self._kept:
            self._kept[key] = work()
        found: Kept = self._kept[key]
        return found

    @property
    def trained(self) -> Tensors:
        """Parameters and buffers after the last step."""
        return {**self.steps[-1].after, **self.steps[-1].buffers}

    @cached_property
    def trained_names(self) -> list[str]:
        """Names of the parameters that are trained."""
        return [name for name, parameter in self.model.named_parameters() if parameter.requires_grad]

    @cached_property
    def norms(self) -> dict[str, tuple[nn.Module, Kind]]:
        """Norm layers by name, and what they do."""
        kinds = self.plan.family.norms
        named = ((name, module, type(module).__name__) for name, module in self.model.named_modules())
        return {name: (module, kinds[kind]) for name, module, kind in named if kind in kinds}

    def at(self, parameters: Tensors, step: Step) -> nn.Module:
        """A copy of the model in float64 and eval mode with these parameters, and the buffers of that step."""
        copy = deepcopy(self.model).double().eval()
        values = {**step.buffers, **parameters}
        with torch.no_grad():
            for name, value in (*copy.named_parameters(), *copy.named_buffers()):
                value.copy_(values[name])
        return copy


def train(plan: Plan) -> Twin:
    """The training of the plan, with everything kept."""
    model = plan.model()
    torch.manual_seed(SEED)
    optimizers = plan.optimizers(model)
    schedules = [schedule(optimizer) for optimizer in optimizers]
    scaler = plan.scaler()
    spy = _Spy(model)
    steps: list[Step] = []
    eval_loss = float("nan")
    for number, batches in enumerate(plan.batches, 1):
        before, rate = _copies(model.named_parameters()), optimizers[0].param_groups[0]["lr"]
        spy.calls = []
        plan.rescale(scaler, number)
        losses = [_backward(plan, model, batches, i, scaler, spy) for i in range(len(batches))]
        scale = scaler.get_scale()
        gradients = {n: p.grad.double() / scale for n, p in model.named_parameters() if p.grad is not None}
        for optimizer in optimizers:
            scaler.unscale_(optimizer)
        if plan.loop.clip:
            nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        used = {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}
        for optimizer in optimizers:
            scaler.step(optimizer)
        scaler.update()
        state = _state(model, optimizers)
        for optimizer, slower in zip(optimizers, schedules, strict=True):
            optimizer.zero_grad()
            slower.step()
        skipped = plan.loop.scaler and number == OVERFLOW
        after, buffers = _copies(model.named_parameters()), _copies(model.named_buffers())
        loss = sum(losses) if plan.counts else sum(losses) / len(losses)
        steps.append(
            Step(number, spy.calls, gradients, used, before, after, buffers, state, loss, rate, skipped, eval_loss)
        )
        eval_loss = evaluate(model, plan) if plan.loop.evaluates and number == 1 else float("nan")
    spy.remove()
    return Twin(plan, model, steps)


def _backward(plan: Plan, model: nn.Module, batches: Any, i: int, scaler: Any, spy: _Spy) -> float:
    """Forward and backward of one micro-batch; returns its loss."""
    call = dict(batches[i])
    if plan.counts:
        call["num_items_in_batch"] = sum(_targets(model, batch["labels"]) for batch in batches)
    with plan.autocast(), spy.watching():
        loss: Tensor = model(**call)["loss"]
    scaler.scale(loss if plan.counts else loss / len(batches)).backward()
    return float(loss.detach())


def _targets(model: nn.Module, labels: Tensor) -> Tensor:
    """As the Trainer counts them: it leaves out the first label of those models that say that they shift."""
    counted = labels[..., 1:] if getattr(model, "loss_type", None) == "ForCausalLM" else labels
    return (counted != -100).sum()


def evaluate(model: nn.Module, plan: Plan) -> float:
    """Loss of the first batch in eval mode."""
    model.eval()
    with torch.no_grad(), plan.autocast():
        loss = float(model(**plan.batches[0][0])["loss"])
    model.train()
    return loss


def _copies(named: Any) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in named}


def _state(model: nn.Module, optimizers: list[Optimizer]) -> dict[str, dict[str, Any]]:
    states = {p: state for optimizer in optimizers for p, state in optimizer.state.items()}
    return {name: deepcopy(dict(states[p])) for name, p in model.named_parameters() if p in states}


class _Spy:
    """Hooks on every module; what they see is cloned."""

    def __init__(self, model: nn.Module) -> None:
        self.calls: list[Call] = []
        self._open = False
        self._handles = []
        self._attention = AttentionSpy(self._inside)
        self._path: list[str] = []
        for name, module in model.named_modules():
            before, after = self._entering(name), self._leaving(name)
            self._handles.append(module.register_forward_pre_hook(before, with_kwargs=True))
            self._handles.append(module.register_forward_hook(after))

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Open for one forward."""
        self._open = True
        with self._attention:
            yield
        self._open = False

    def remove(self) -> None:
        for handle in self._handles:
            handle.remove()

    def _inside(self, call: AttentionCall) -> None:
        call.module = self._path[-1]
        self.calls[-1].attention.append(call)

    def _entering(self, name: str) -> Any:
        def hook(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            if not self._open:
                return
            if name == "":
                self.calls.append(Call(_clone(kwargs)))
            self._path.append(name)
            self.calls[-1].inputs.setdefault(name, []).append((_clone(args), _clone(kwargs)))

        return hook

    def _leaving(self, name: str) -> Any:
        def hook(module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
            if self._open:
                self._path.pop()
                self.calls[-1].outputs.setdefault(name, []).append(_clone(output))

        return hook


def _clone(value: Any) -> Any:
    """Copies of the tensors in tuples, lists and mappings; what else is there stays."""
    if isinstance(value, Tensor):
        return value.detach().clone()
    if isinstance(value, Mapping):
        return {key: _clone(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return tuple(_clone(item) for item in value)
    return value
