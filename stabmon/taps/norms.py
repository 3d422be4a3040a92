"""Signals 1 and 2 at every norm layer's input, token similarity, and the context share at the last norm.

Shapes: N tokens, D features.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from stabmon.records import Site
from stabmon.taps import Due
from stabmon.taps.anatomy import Norm, norm_sites
from stabmon.taps.forward import Forward, in_backward
from stabmon.taps.hooks import Hook, spent

MAX_TOKENS = 256
"""Tokens that similarity and context share are computed on, spread over the batch."""
PER_NORM = ("norm_input_msq", "norm_input_var", "norm_gain", "token_similarity")
_COUNTS = 3


class Norms:
    """Means over the micro-batches of a step, added up on the device in one small matrix [norm, counts + statistics].

    The last norm is read in every step, the others in steps where layers are due.
    """

    name = "norms"

    def __init__(self, norms: Sequence[Norm], blocks: Sequence[str], forward: Forward, device: torch.device) -> None:
        self._norms = {norm.name: norm for norm in norms}
        self._blocks = blocks
        self._forward = forward
        self._sums = torch.zeros(len(norms), _COUNTS + len(PER_NORM) + 1, device=device)
        self._row = {norm.name: i for i, norm in enumerate(norms)}
        self._called: list[str] = []
        self._last: str | None = None
        self._order: Tensor | None = None
        """Rows of the norms in forward order, kept on the device: to bring them there is to wait for it."""
        self._due = Due(layers=True)
        self._error: Exception | None = None
        forward.forget = self._forget
        self._handles = [
            norm.module.register_forward_pre_hook(Hook(self._hook(norm), self._fail), with_kwargs=True)
            for norm in norms
        ]

    @property
    def sites(self) -> Mapping[str, Site]:
        """Site of each norm that was called, in forward order. Known after the first step."""
        return norm_sites(self._called, self._blocks)

    @property
    def unseen(self) -> list[str]:
        """Norms that the first step's forwards did not call."""
        return [name for name in self._norms if name not in self._called]

    def settle(self) -> None:
        """After the first step: the order is known, and with it the last norm."""
        self._last = self._called[-1] if self._called else None
        self._order = self._forward_order()

    def columns(self) -> Sequence[tuple[str, Site]]:
        sites = self.sites.values()
        whole = Site("")
        per_norm = [(statistic, site) for statistic in PER_NORM for site in sites]
        return [*per_norm, ("final_norm_input_msq", whole), ("context_share", whole)]

    def arm(self, due: Due) -> None:
        self._due = due
        self._sums.zero_()

    def read(self) -> Tensor:
        if self._error is not None:
            raise self._error
        if not self._called:
            return self._sums.new_full((2,), torch.nan)
        order = self._forward_order() if self._order is None else self._order
        sums = self._sums.index_select(0, order)
        counts = torch.cat((sums[:, :1].expand(-1, 3), sums[:, 1:_COUNTS]), dim=1)
        means = sums[:, _COUNTS:] / counts  # 0/0: not read
        means = torch.where((counts > 0) & ~means.isfinite(), torch.inf, means)
        final = torch.stack((means[-1, 0], means[-1, -1]))
        layers = means[:, : len(PER_NORM)].T.reshape(-1)
        return torch.cat((layers if self._due.layers else torch.full_like(layers, torch.nan), final))

    def weights(self) -> float:
        return 1.0

    def detach(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def _forward_order(self) -> Tensor:
        rows = [self._row[name] for name in self._called]
        return torch.tensor(rows, dtype=torch.long, device=self._sums.device)

    def _forget(self) -> None:
        self._called.clear()
        self._sums.zero_()

    def _fail(self, error: Exception) -> None:
        self._error = error

    def _hook(self, norm: Norm) -> Callable[..., None]:
        def hook(module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
            last = self._last in (None, norm.name)
            if not self._forward.training or not (self._due.layers or last) or in_backward():
                return
            if self._last is None:
                if norm.name in self._called:
                    self._called.remove(norm.name)  # the latest call counts: a shared norm ends where it was last
                self._called.append(norm.name)
            x = args[0] if args else next(iter(kwargs.values()))
            if x.numel() == 0:
                return
            # A clock would break a compiled graph.
            with torch.no_grad(), nullcontext() if torch.compiler.is_compiling() else spent:
                row = measure(norm, x.detach(), self._due.layers, last)
                self._sums[self._row[norm.name]] += row.to(self._sums.device, non_blocking=True)

        return hook


def measure(norm: Norm, x: Tensor, layers: bool = True, share: bool = True) -> Tensor:
    """float32 [counts, norm_input_msq, norm_input_var, norm_gain, token_similarity, context_share] of one norm input.

    Three counts: 1 for what any input has, 1 for what takes two tokens (token_similarity), 1 for what takes an output
    beside 0 (context_share). norm_gain is the tangential factor of the norm's Jacobian, rms(gamma)/sqrt(var+eps)
    (Xiong et al. 2020, Lemma 3). context_share is that of the norm's output, on at most 256 tokens. 0 where a reading
    is not asked for: without `layers` all between norm_input_msq and context_share.
    """
    x_ND = x.float().reshape(-1, norm.width or x.shape[-1])
    gamma, beta = norm.gamma(), norm.beta()
    unit_ND = _normalised(norm, _spread(x_ND, MAX_TOKENS))
    zero = x_ND.new_zeros(())
    several = zero + (x_ND.shape[0] > 1)
    if layers:
        square, var_N = _moments(x_ND, norm.centred)
        gain = torch.rsqrt(var_N + norm.eps).mean()
        gain = gain if gamma is None else gain * gamma.square().mean().sqrt()
        row = [square, var_N.mean(), gain, similarity(unit_ND) if x_ND.shape[0] > 1 else zero]
    else:
        row = [_msq(x_ND).mean(), zero, zero, zero]
    if not share:
        return torch.stack([zero + 1, several, zero, *row, zero])
    out_ND = unit_ND if gamma is None else unit_ND * gamma
    out_ND = out_ND if beta is None else out_ND + beta
    readable = several * out_ND.any()
    return torch.stack([zero + 1, several, readable, *row, context_share(out_ND).where(readable > 0, 0)])


def _moments(x_ND: Tensor, centred: bool) -> tuple[Tensor, Tensor]:
    """Mean square, and per token the mean square of what the norm divides by. `Tensor.var` takes ten times as long."""
    if not centred:
        square_N = _msq(x_ND)
        return square_N.mean(), square_N
    mean_N1 = x_ND.mean(-1, keepdim=True)
    var_N = _msq(x_ND - mean_N1)
    return (var_N + mean_N1.squeeze(-1).square()).mean(), var_N


def _msq(x: Tensor) -> Tensor:
    """Mean square over the last dimension, in one pass and without a copy."""
    norm: Tensor = torch.linalg.vector_norm(x, dim=-1)
    return norm.square() / x.shape[-1]


def _normalised(norm: Norm, x_ND: Tensor) -> Tensor:
    """What the norm makes of these tokens, before gamma and beta."""
    y_ND = x_ND - x_ND.mean(-1, keepdim=True) if norm.centred else x_ND
    return y_ND * torch.rsqrt(y_ND.square().mean(-1, keepdim=True) + norm.eps)


def similarity(y_ND: Tensor) -> Tensor:
    """Mean cosine between two different tokens: (N^2 ||mean of unit vectors||^2 - N) / (N(N - 1))."""
    tokens = y_ND.shape[0]
    unit = torch.nn.functional.normalize(y_ND, dim=-1)
    return (tokens * unit.mean(0).square().sum() - 1) / max(tokens - 1, 1)


def context_share(z_ND: Tensor) -> Tensor:
    """Part of the sum of squares that is left when the mean over the tokens is taken away."""
    return (z_ND - z_ND.mean(0)).square().sum() / z_ND.square().sum()


def _spread(x_ND: Tensor, most: int) -> Tensor:
    """At most about `most` tokens at an odd stride, so that no one position of equally long sequences is preferred."""
    stride = -(-x_ND.shape[0] // most)
    return x_ND[:: stride | 1] if stride > 1 else x_ND
