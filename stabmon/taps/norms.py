"""Signals 1 and 2 at every norm layer's input, token similarity, and the context share at the last norm.

Shapes: N tokens, D features.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from stabmon.records import Site
from stabmon.taps import Due
from stabmon.taps.anatomy import Norm, norm_sites
from stabmon.taps.forward import Forward, in_backward
from stabmon.taps.hooks import Hook

MAX_TOKENS = 256
"""Tokens that similarity and context share are computed on, spread over the batch."""
PER_NORM = ("norm_input_msq", "norm_input_var", "norm_gain", "token_similarity")
_COUNT, _SHARE = 0, 1 + len(PER_NORM)


class Norms:
    """Means over the micro-batches of a step, added up on the device in one small matrix [norm, count + statistics].

    The last norm is read in every step, the others in steps where layers are due.
    """

    name = "norms"

    def __init__(self, norms: Sequence[Norm], blocks: Sequence[str], forward: Forward, device: torch.device) -> None:
        self._norms = {norm.name: norm for norm in norms}
        self._blocks = blocks
        self._forward = forward
        self._sums = torch.zeros(len(norms), _SHARE + 1, device=device)
        self._row = {norm.name: i for i, norm in enumerate(norms)}
        self._called: list[str] = []
        self._last: str | None = None
        self._due = Due(layers=True)
        self._error: Exception | None = None
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
        sums = self._sums[[self._row[name] for name in self._called]]
        means = sums[:, 1:] / sums[:, :1]  # 0/0: not read
        means = torch.where((sums[:, :1] > 0) & ~means.isfinite(), torch.inf, means)
        final = torch.stack((means[-1, 0], means[-1, _SHARE - 1]))
        layers = means[:, : len(PER_NORM)].T.reshape(-1)
        return torch.cat((layers if self._due.layers else torch.full_like(layers, torch.nan), final))

    def detach(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

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
            with torch.no_grad():
                row = measure(norm, x.detach(), share=last).to(self._sums.device, non_blocking=True)
                self._sums[self._row[norm.name]] += row

        return hook


def measure(norm: Norm, x: Tensor, share: bool = True) -> Tensor:
    """float32 [1, norm_input_msq, norm_input_var, norm_gain, token_similarity, context_share] of one norm input.

    norm_gain is the tangential factor of the norm's Jacobian, rms(gamma)/sqrt(var+eps) (Xiong et al. 2020, Lemma 3).
    context_share is that of the norm's output, on at most 256 tokens; 0 where `share` is not asked for.
    """
    x_ND = x.float().reshape(-1, norm.width or x.shape[-1])
    square = x_ND.square().mean()
    var_N = x_ND.var(-1, unbiased=False) if norm.centred else x_ND.square().mean(-1)
    gamma, beta = norm.gamma(), norm.beta()
    scale_N = torch.rsqrt(var_N + norm.eps)
    gain = scale_N.mean() if gamma is None else scale_N.mean() * gamma.square().mean().sqrt()
    some_ND = _spread(x_ND, MAX_TOKENS)
    y_ND = some_ND - some_ND.mean(-1, keepdim=True) if norm.centred else some_ND
    y_ND = y_ND * torch.rsqrt(y_ND.square().mean(-1, keepdim=True) + norm.eps)
    row = [torch.ones_like(square), square, var_N.mean(), gain, similarity(y_ND)]
    if share:
        out_ND = y_ND if gamma is None else y_ND * gamma
        row.append(context_share(out_ND if beta is None else out_ND + beta))
    else:
        row.append(torch.zeros_like(square))
    return torch.stack(row)


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
