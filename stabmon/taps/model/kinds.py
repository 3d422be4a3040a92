"""Kinds of norm layers: which numbers of the input are normalised together, and what they are multiplied by.

Shapes: B samples, N tokens or positions, D features or channels; G groups of M numbers that share mean and variance.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from stabmon.taps.ranks.sharding import local

GAMMA = ("weight", "gamma", "scale", "g")
BETA = ("bias", "beta", "b")


class Over(Protocol):
    """What is normalised together."""

    by_token: bool
    """Whether each token is normalised by itself, so that some may count and others not."""

    def rows(self, x: Tensor) -> Tensor:
        """[G, M]: the input by groups."""
        ...

    def tokens(self, x: Tensor) -> Tensor:
        """[N, D]: the input by positions, channels last."""
        ...

    def rms(self, gamma: Tensor) -> Tensor:
        """float32[k]: root mean square of gamma in each of k groups, which repeat G / k times."""
        ...

    def divisor(self, module: nn.Module, var_G: Tensor) -> Tensor:
        """float32[G]: the variance that it divides by."""
        ...


@dataclass(frozen=True, slots=True)
class Norm:
    """One norm layer."""

    name: str
    module: nn.Module
    over: Over
    centred: bool
    """Whether it subtracts the mean; RMSNorm does not."""
    eps: float
    offset: float = 0.0
    """gamma_eff = weight + offset; 1 in models that learn gamma - 1 (Gemma)."""
    unit_length: bool = False
    """Divides by the length and not by the root mean square, which is the smaller by sqrt(D)."""

    @property
    def width(self) -> int | None:
        """Features of a token, where the last dimensions are normalised; None: that of the input's last dimension."""
        return self.over.width if isinstance(self.over, Features) and self.over.axis == -1 else None

    def gamma(self) -> Tensor | None:
        """What it multiplies the normalised input by, float32[D], or [heads, D]; None = 1."""
        weight = named(self.module, GAMMA)
        if weight is None:
            return None
        gamma = local(weight.detach()).float() + self.offset
        return gamma if gamma.ndim == 2 and isinstance(self.over, Features) and self.over.heads else gamma.reshape(-1)

    def beta(self) -> Tensor | None:
        """What it adds afterwards, float32[D]; None = 0."""
        bias = named(self.module, BETA)
        return None if bias is None else local(bias.detach()).float().reshape(-1)


def named(module: nn.Module, names: tuple[str, ...]) -> Tensor | None:
    """The first parameter or buffer of these names that it has."""
    found = (getattr(module, name, None) for name in names)
    return next((value for value in found if isinstance(value, Tensor)), None)


@dataclass(frozen=True, slots=True)
class Features:
    """Each token's features: LayerNorm, RMSNorm; the heads' features in a QK-norm; channels first in ConvNeXt."""

    width: int | None = None
    """None: the size of the axis."""
    axis: int = -1
    heads: bool = False
    """Whether there is a gamma for each head."""
    by_token = True

    def rows(self, x: Tensor) -> Tensor:
        x = x if self.axis == -1 else x.movedim(self.axis, -1)
        return x.reshape(-1, self.width or x.shape[-1])

    def tokens(self, x: Tensor) -> Tensor:
        return self.rows(x)

    def rms(self, gamma: Tensor) -> Tensor:
        return gamma.square().mean(-1).sqrt().reshape(-1)

    def divisor(self, module: nn.Module, var_G: Tensor) -> Tensor:
        return var_G


@dataclass(frozen=True, slots=True)
class ChannelGroups:
    """Groups of a sample's channels, over all its positions: GroupNorm on [B, D, …]."""

    number: int
    by_token = False

    def rows(self, x: Tensor) -> Tensor:
        return x.reshape(x.shape[0] * self.number, -1)

    def tokens(self, x: Tensor) -> Tensor:
        return _positions(x)

    def rms(self, gamma: Tensor) -> Tensor:
        return gamma.reshape(self.number, -1).square().mean(-1).sqrt()

    def divisor(self, module: nn.Module, var_G: Tensor) -> Tensor:
        return var_G


@dataclass(frozen=True, slots=True)
class Channels:
    """One channel at all positions, of the batch (BatchNorm) or of each sample (InstanceNorm), on [B, D, …].

    In eval mode, and where it is frozen, it divides by the running variance if it keeps one.
    """

    per_sample: bool = False
    frozen: bool = False
    """Never looks at its input's statistics."""
    by_token = False

    def rows(self, x: Tensor) -> Tensor:
        x = x if self.per_sample else x.transpose(0, 1)
        return x.reshape(x.shape[0] * x.shape[1] if self.per_sample else x.shape[0], -1)

    def tokens(self, x: Tensor) -> Tensor:
        return _positions(x)

    def rms(self, gamma: Tensor) -> Tensor:
        return gamma.abs()

    def divisor(self, module: nn.Module, var_G: Tensor) -> Tensor:
        running = getattr(module, "running_var", None)
        if not isinstance(running, Tensor) or (module.training and not self.frozen):
            return var_G
        return running.detach().float().to(var_G.device).repeat(var_G.numel() // running.numel())


def _positions(x: Tensor) -> Tensor:
    return x.movedim(1, -1).reshape(-1, x.shape[1])


def normalised(norm: Norm, x: Tensor, most: int) -> Tensor | None:
    """[N, D]: what the norm makes of at most about `most` tokens, before gamma and beta.

    None where it takes the mean over all positions away, and with it what they have in common (Channels).
    """
    if isinstance(norm.over, Channels):
        return None
    if isinstance(norm.over, ChannelGroups):
        return spread(norm.over.tokens(F.group_norm(x, norm.over.number, eps=norm.eps)), most)
    x_ND = spread(norm.over.tokens(x), most)
    y_ND = x_ND - x_ND.mean(-1, keepdim=True) if norm.centred else x_ND
    return y_ND * torch.rsqrt(y_ND.square().mean(-1, keepdim=True) + norm.eps)


def spread(x: Tensor, most: int) -> Tensor:
    """At most about `most` of N at an odd stride, so that no one position of equally long sequences is preferred."""
    stride = -(-x.shape[0] // most)
    return x[:: stride | 1] if stride > 1 else x
