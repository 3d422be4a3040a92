"""The probe: one call of the model, replayed with any parameter values and no trace left."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeVar

import torch
from torch import Tensor, nn

from stabmon.taps.probe.calls import Call, tensors_in
from stabmon.taps.probe.returned import IGNORE_INDEX, counted, loss_of, output_of, predicts_classes
from stabmon.taps.probe.swapped import swapped
from stabmon.taps.probe.undisturbed import device_of, undisturbed
from stabmon.taps.real import real

FULL_PRECISION = (torch.float32, torch.float64, torch.complex64, torch.complex128)
HALVES = (torch.float16, torch.bfloat16)

Differentiate = Callable[[Tensor, Tensor | None, Sequence[Tensor]], Sequence[Tensor | None]]
"""(what, its cotangent, with respect to these) -> gradients."""
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Answer:
    """What the model said of the probe, with its graph; to be looked at while the probe's parameters are in place."""

    z: Tensor | None
    """float32[N, V], 0 where the position does not count; of classes: minus its mean over V. None: there is none."""
    weights: Tensor | None
    """float32[N]: 1 for a position that counts, 0 for padding; None: all count."""
    classes: bool
    """Whether softmax(z) is a prediction."""
    loss: Tensor | None
    """Scalar: the model's own loss, else cross entropy with the given targets, else None."""
    supervised: Tensor
    """Scalar bool: whether any label counts, and all are classes of the output; otherwise the loss says nothing."""
    leaves: Mapping[str, Tensor]
    """The parameters that were given values, by name."""
    differentiate: Differentiate

    def slope(self, toward: Mapping[str, Tensor]) -> Tensor | None:
        """Scalar: gradient of the loss times (toward - parameters); None without a loss."""
        if self.loss is None or not self.leaves or not self.loss.requires_grad:
            return None
        gradients = self.differentiate(self.loss, None, list(self.leaves.values()))
        parts = [
            (real(gradient) * real(toward[name].detach() - leaf.detach())).sum().to(self.loss.device)
            for gradient, (name, leaf) in zip(gradients, self.leaves.items(), strict=True)
            if gradient is not None
        ]
        return torch.stack(parts).sum() if parts else None


@dataclass(frozen=True)
class Probe:
    """The model on a fixed call, eager and in eval mode, at whatever parameter values are asked for.

    The model's parameters, gradients, buffers and attributes and all random states stay as they are, also when the
    forward raises. Forward hooks fire, but stabmon's own.
    """

    model: nn.Module
    call: Call
    targets: Tensor | None = None
    norms: Sequence[nn.Module] = ()
    """Where the model returns no output, that of the one of these that was called last stands for it."""
    wide: bool = False
    """Whether parameters, buffers and inputs below float32 are widened to it."""
    exact: bool = True
    """Whether nothing inside is below float32; otherwise a difference of outputs is mostly rounding."""
    silent: bool = False
    """Whether the model returns no output of its own."""
    differentiate: Differentiate = field(default_factory=lambda: by_grad)

    @cached_property
    def parameters(self) -> Mapping[str, nn.Parameter]:
        """By the names that they have at first: pruning gives them others, and some may leave the model."""
        return dict(self.model.named_parameters())

    def _labelled(self) -> Tensor:
        """Scalar bool: whether any label of the probe counts; the loss over none is not a number."""
        labels = self.call.named("labels")
        labels = self.targets if labels is None else labels
        if labels is not None and not labels.is_floating_point():
            return (labels != IGNORE_INDEX).any()
        return torch.ones((), dtype=torch.bool, device=device_of(self.model))

    def __call__(self, values: Mapping[str, Tensor], look: Callable[[Answer], _T]) -> _T:
        """What `look` sees in the answer at these values of parameters (the model's own where a name is missing).

        Always with a graph: without one some kernels round differently, and a difference of outputs would show it.
        """
        leaves = {name: self._widened(value.detach()).requires_grad_() for name, value in values.items()}
        given = {id(self.parameters[name]): leaf for name, leaf in leaves.items()}
        rest = {id(p): self._widened(p.detach()) for p in self.model.parameters() if type(p) is nn.Parameter}
        buffers = {id(buffer): self._widened(buffer.clone()) for buffer in self.model.buffers()}
        with undisturbed(self.model, self.call.module), torch.enable_grad():
            return swapped(self.model, rest | given | buffers, lambda: look(self._answer(leaves)))

    def _answer(self, leaves: Mapping[str, Tensor]) -> Answer:
        call = self.call.map(self._widened)
        with _last_output(self.norms) as last:
            returned = call(self.model)
        labels = call.named("labels")
        output = output_of(returned, self.targets if labels is None else labels)
        loss, scored = loss_of(returned, output, self.targets)
        supervised = self._labelled() if scored is None else scored
        classes = output is not None and predicts_classes(self.model, call, self.targets, returned, output)
        output = next(iter(last.values()), None) if output is None else output
        z, weights = None, None
        if output is not None:
            weights = counted(self.model, call, output)
            z = output.reshape(-1, output.shape[-1])
            z = z if z.dtype in FULL_PRECISION else z.float()
            z = z - z.mean(-1, keepdim=True) if classes else z
            z = z if weights is None else torch.where(weights.unsqueeze(-1) > 0, z, 0.0)
        return Answer(z, weights, classes, loss, supervised, leaves, self.differentiate)

    def _widened(self, tensor: Tensor) -> Tensor:
        return tensor.float() if self.wide and tensor.dtype in HALVES else tensor


def by_grad(what: Tensor, cotangent: Tensor | None, leaves: Sequence[Tensor]) -> Sequence[Tensor | None]:
    """Gradients that leave no trace anywhere; re-entrant checkpointing does not allow this."""
    return [_dense(g) for g in torch.autograd.grad(what, leaves, cotangent, retain_graph=True, allow_unused=True)]


def by_backward(what: Tensor, cotangent: Tensor | None, leaves: Sequence[Tensor]) -> Sequence[Tensor | None]:
    """The same through `.grad` of the leaves, which are the probe's own and not the model's parameters."""
    what.backward(cotangent, retain_graph=True)
    gradients = [_dense(leaf.grad) for leaf in leaves]
    for leaf in leaves:
        leaf.grad = None
    return gradients


def _dense(gradient: Tensor | None) -> Tensor | None:
    """An embedding's may be sparse."""
    return gradient.to_dense() if gradient is not None and gradient.is_sparse else gradient


@contextmanager
def _last_output(norms: Sequence[nn.Module]) -> Iterator[dict[str, Tensor]]:
    """What the norm that was called last returned, by "last"."""
    last: dict[str, Tensor] = {}

    def keep(module: nn.Module, args: object, output: object) -> None:
        last.update(last=next(tensors_in(output)))

    handles = [norm.register_forward_hook(keep) for norm in norms]
    try:
        yield last
    finally:
        for handle in handles:
            handle.remove()
