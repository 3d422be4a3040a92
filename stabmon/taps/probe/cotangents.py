"""Estimates how far an update moves the output from gradients of random combinations of it, in any precision.

With J_l the Jacobian of the output at block l's parameters, delta_l their update and u ~ N(0, 1) on the output,
E (u . J_l delta_l)^2 = ||J_l delta_l||^2, and u . J_l delta_l is the gradient of u . z times delta_l. One backward pass
serves all blocks, and their sum the whole update. This is the first order of the change: no second output is compared,
so nothing is lost to rounding.

Shapes: N positions that count, V values at each, k cotangents, B blocks.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from stabmon.taps.probe.probe import Answer
from stabmon.taps.real import real

COUNT = 4
"""Cotangents of each kind."""


@dataclass(frozen=True, slots=True)
class Estimates:
    """Mean squares over N and V, float32. Relative standard error of each root: `standard_error`."""

    blocks: Tensor
    """float32[B]: the change when a block alone takes its update."""
    whole: Tensor
    """The change by the whole update."""
    context: Tensor
    """Its part that differs between positions."""
    kl: Tensor | None
    """KL divergence per position in nats, None where the output predicts no classes; its error is twice that."""


class Cotangents:
    """Draws cotangents, takes their gradients, sums them by block. `blocks`: names of parameters."""

    def __init__(self, blocks: Iterable[Sequence[str]], count: int = COUNT) -> None:
        self._block_of = {name: i for i, names in enumerate(blocks) for name in names}
        self._blocks = 1 + max(self._block_of.values(), default=-1)
        self._count = count
        self._index: Tensor | None = None

    @property
    def standard_error(self) -> float:
        """Relative standard error of the root of an estimate: 1 / sqrt(2k)."""
        return 1 / math.sqrt(2 * self._count)

    def dots(self, answer: Answer, toward: Mapping[str, Tensor], seed: int) -> Tensor:
        """float32[k, B]: u . J_l delta_l / sqrt(NV), normal numbers with the change's RMS as standard deviation."""
        draw = _Draw(answer, seed)
        return self._dots(answer, toward, draw.any) / draw.size.sqrt()

    def block_changes(self, answer: Answer, toward: Mapping[str, Tensor], seed: int) -> Tensor:
        """float32[B] like `Estimates.blocks`, at a third of the cost of all of it."""
        return self.dots(answer, toward, seed).square().mean(0)

    def estimate(self, answer: Answer, toward: Mapping[str, Tensor], seed: int) -> Estimates:
        """Of the update from the answer's parameters to `toward`. Takes 3k backward passes, 2k without classes."""
        draw = _Draw(answer, seed)
        common = self._dots(answer, toward, draw.common)
        differing = self._dots(answer, toward, draw.differing)
        both, kl = common + differing, None
        if answer.classes:
            kl = self._dots(answer, toward, draw.fisher).sum(1).square().mean() / (2 * draw.positions)
        return Estimates(
            blocks=both.square().mean(0) / draw.size,
            whole=both.sum(1).square().mean() / draw.size,
            context=differing.sum(1).square().mean() / draw.size,
            kl=kl,
        )

    def _dots(self, answer: Answer, toward: Mapping[str, Tensor], draw: Callable[[], Tensor]) -> Tensor:
        """float32[k, B] of u . J_l delta_l, a new u for each row."""
        assert answer.z is not None
        leaves = list(answer.leaves.values())
        moves = [real(toward[k].detach()).float() - real(leaf.detach()).float() for k, leaf in answer.leaves.items()]
        blocks = self._index_of(answer)
        rows = []
        for _ in range(self._count):
            gradients = answer.differentiate(answer.z, draw().to(answer.z.dtype), leaves)
            nothing = moves[0].new_zeros(())
            dots = [
                nothing if g is None else torch.dot(real(g).reshape(-1).float(), move.reshape(-1)).to(nothing.device)
                for g, move in zip(gradients, moves, strict=True)
            ]
            rows.append(nothing.new_zeros(self._blocks).index_add(0, blocks, torch.stack(dots)))
        return torch.stack(rows)

    def _index_of(self, answer: Answer) -> Tensor:
        """Block of each leaf; made once, since bringing it to the device is waiting for it."""
        if self._index is None:
            first = next(iter(answer.leaves.values()))
            self._index = torch.tensor([self._block_of[name] for name in answer.leaves]).to(first.device)
        return self._index


class _Draw:
    """Random cotangents of one answer, float32[N, V], 0 where a position does not count; alike for the same seed."""

    def __init__(self, answer: Answer, seed: int) -> None:
        assert answer.z is not None
        self._z = answer.z.detach().float()
        self._weights = self._z.new_ones(len(self._z)) if answer.weights is None else answer.weights.to(self._z)
        self._generator = torch.Generator(self._z.device).manual_seed(_hashed(seed))
        self.positions = self._weights.sum()
        self.size = self.positions * self._z.shape[1]

    def any(self) -> Tensor:
        """N(0, 1) in every value."""
        return self._normal(*self._z.shape) * self._weights.unsqueeze(-1)

    def common(self) -> Tensor:
        """The same at every position: that part of an N(0, 1) in every value."""
        return self._normal(1, self._z.shape[1]) * (self._weights / self.positions.sqrt()).unsqueeze(-1)

    def differing(self) -> Tensor:
        """The rest of it: with mean 0 over the positions."""
        u = self.any()
        return u - (u.sum(0) / self.positions) * self._weights.unsqueeze(-1)

    def fisher(self) -> Tensor:
        """With the covariance diag(p) - p p^T of classes: E (u . Jd)^2 is twice the KL divergence, to second order.

        The same metric as u = onehot(y) - p with y drawn from p (the natural gradient's), but normal, so that the
        error is that of the other cotangents.
        """
        p = self._z.softmax(-1)
        u = p.sqrt() * self._normal(*p.shape)
        return (u - p * u.sum(-1, keepdim=True)) * self._weights.unsqueeze(-1)

    def _normal(self, *shape: int) -> Tensor:
        return torch.randn(shape, generator=self._generator, dtype=torch.float32, device=self._z.device)


def _hashed(seed: int) -> int:
    """The same on every rank and in every process, unlike `hash`; neighbours have nothing in common."""
    return int.from_bytes(hashlib.blake2b(str(seed).encode(), digest_size=7).digest(), "big")
