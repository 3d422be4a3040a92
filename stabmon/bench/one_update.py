"""One update of a small causal language model, and what it does to the output, worked out exactly in float64.

Shapes: B sequences, T tokens, V byte values.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from stabmon.taps.probe.calls import Call

Parameters = Mapping[str, Tensor]


@dataclass(frozen=True)
class Update:
    """From `before` to `after`, which are all parameters of the model, by name."""

    model: nn.Module
    call: Call
    before: Parameters
    after: Parameters

    @property
    def blocks(self) -> Sequence[Sequence[str]]:
        """Names of parameters: those of each block, and the rest."""
        found: dict[str, list[str]] = {}
        for name in self.before:
            head, _, rest = name.partition(".")
            found.setdefault(f"{head}.{rest.split('.')[0]}" if head == "blocks" else "rest", []).append(name)
        return list(found.values())

    def logits(self, parameters: Parameters) -> Tensor:
        """float64[B T, V], minus their mean over V."""
        return self._of({name: value.double() for name, value in parameters.items()})

    def swapped(self, names: Iterable[str]) -> Tensor:
        """float64[B T, V]: the change when these alone take their update."""
        moved = {**self.before, **{name: self.after[name] for name in names}}
        return self.logits(moved) - self.logits(self.before)

    def derivative(self, names: Iterable[str]) -> Tensor:
        """float64[B T, V]: the same to first order, exactly: the Jacobian at `before` times the update."""
        here = {name: value.double().requires_grad_() for name, value in self.before.items()}
        moves = [(self.after[name].double() - self.before[name].double(), here[name]) for name in names]
        with sdpa_kernel(SDPBackend.MATH):  # the others have no second derivative
            z = self._of(here)
            # Forward mode by reverse mode twice: u^T J move is linear in u, and its gradient there is J move.
            u = torch.zeros_like(z, requires_grad=True)
            rows = torch.autograd.grad(z, [leaf for _, leaf in moves], u, create_graph=True)
            along = torch.stack([(row * move).sum() for row, (move, _) in zip(rows, moves, strict=True)]).sum()
            return torch.autograd.grad(along, u)[0]

    def scaled_to(self, lr: float, of: float) -> Update:
        """The update that the learning rate `lr` would have made of this one, made with `of`; rounded to float32."""
        moved = {n: (b.double() + (self.after[n].double() - b) * lr / of).float() for n, b in self.before.items()}
        return Update(self.model, self.call, self.before, moved)

    def _of(self, parameters: Parameters) -> Tensor:
        logits: Tensor = torch.func.functional_call(self.model, dict(parameters), self.call.args)
        return (logits - logits.mean(-1, keepdim=True)).flatten(0, -2)


def one_update(model: nn.Module, tokens_BT: Tensor, lr: float, steps: int) -> Update:
    """Adam's, after `steps` others on the same tokens; the model, in eval mode, ends at `after`."""
    optimizer = torch.optim.Adam(model.train().parameters(), lr)
    for _ in range(steps + 1):
        before = {name: p.detach().clone() for name, p in model.named_parameters()}
        F.cross_entropy(model(tokens_BT[:, :-1]).flatten(0, 1), tokens_BT[:, 1:].flatten()).backward()
        optimizer.step()
        optimizer.zero_grad()
    after = {name: p.detach().clone() for name, p in model.named_parameters()}
    return Update(model.eval(), Call((tokens_BT[:, :-1],), {}), before, after)


def rms(x: Tensor) -> float:
    """Root mean square."""
    return float(x.double().square().mean().sqrt())
