"""Signals 1 and 2 at every norm layer's input, token similarity, and the context share at the last norm.

Shapes: N tokens, D features; G groups of numbers that are normalised together (see kinds).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from stabmon.records import Site
from stabmon.taps import Due
from stabmon.taps.compiled import settled_by_tracing
from stabmon.taps.forward import Forward, in_backward
from stabmon.taps.hooks import Hook, spent
from stabmon.taps.model.anatomy import norm_sites
from stabmon.taps.model.kinds import Norm, normalised, spread
from stabmon.taps.ranks.sharding import local
from stabmon.taps.readings import Place, Readings

MAX_TOKENS = 256
"""Tokens that similarity and context share are computed on, spread over the batch."""
PER_NORM = ("norm_input_msq", "norm_input_var", "norm_gain", "token_similarity")


class Norms:
    """Means over the tokens of a step's micro-batches. The last norm is read in every step, the others in steps where
    layers are due."""

    name = "norms"

    def __init__(self, norms: Sequence[Norm], blocks: Sequence[str], forward: Forward, device: torch.device) -> None:
        self._norms = {norm.name: norm for norm in norms}
        self._blocks = blocks
        self._forward = forward
        self._readings = Readings(len(norms), ["mean"] * (len(PER_NORM) + 1), device)
        self._device = device
        self._row = {norm.name: i for i, norm in enumerate(norms)}
        self._called: list[str] = []
        self._placements: Mapping[str, str] = {}
        self._last: str | None = None
        self._order: Tensor | None = None
        """Rows of the norms in forward order, kept on the device: to bring them there is to wait for it."""
        self._due = Due(layers=True)
        self._error: Exception | None = None
        forward.forget = self._forget
        self._handles = [
            norm.module.register_forward_pre_hook(Hook(_Watched(self, norm, place).see, self._fail), with_kwargs=True)
            for norm, place in zip(norms, self._readings.places, strict=False)
        ]

    @property
    def sites(self) -> Mapping[str, Site]:
        """Site of each norm that was called, in forward order. Known after the first step."""
        sites = norm_sites(self._called, self._blocks)
        return {name: replace(site, placement=self._placements.get(name, "")) for name, site in sites.items()}

    @property
    def unseen(self) -> list[str]:
        """Norms that the first step's forwards did not call."""
        return [name for name in self._norms if name not in self._called]

    def find(self) -> None:
        """After a compiled first step: layers that share another one's graph were called without a word of Python.

        They are told by what was read, which is waited for.
        """
        counted = self._readings.weights()[:, 0].gt(0).tolist()
        hidden = {name for name, seen in zip(self._norms, counted, strict=True) if seen} - {*self._called}
        if hidden:  # in the order in which the model holds them
            self._called = [name for name in self._norms if name in hidden or name in self._called]

    def place(self, placements: Mapping[str, str]) -> None:
        """Where each norm sits is known, for its site to tell."""
        self._placements = placements

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
        self._readings.clear()

    def read(self) -> Tensor:
        if self._error is not None:
            raise self._error
        return self._in_columns(self._readings.values(), torch.nan)

    def weights(self) -> Tensor:
        return self._in_columns(self._readings.weights(), 0.0)

    def _in_columns(self, of_norms: Tensor, nothing: float) -> Tensor:
        """float32[len(columns)] of what is kept as [norm, statistic]."""
        if not self._called:
            return of_norms.new_full((2,), nothing)
        order = self._forward_order() if self._order is None else self._order
        ordered = of_norms.index_select(0, order)
        layers = ordered[:, : len(PER_NORM)].T.reshape(-1)
        layers = layers if self._due.layers else torch.full_like(layers, nothing)
        return torch.cat((layers, ordered[-1, :1], ordered[-1, -1:]))

    def detach(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def _forward_order(self) -> Tensor:
        rows = [self._row[name] for name in self._called]
        return torch.tensor(rows, dtype=torch.long, device=self._device)

    def _forget(self) -> None:
        self._called.clear()
        self._readings.clear()

    def _fail(self, error: Exception) -> None:
        self._error = error

    def call(self, norm: str) -> bool:
        """It is called. Whether it is the last one, or may be."""
        if self._last is None:
            if norm in self._called:
                self._called.remove(norm)  # the latest call counts: a shared norm ends where it was last
            self._called.append(norm)
        return self._last in (None, norm)

    def add(self, norm: Norm, place: Place, x: Tensor, share: bool) -> None:
        """Its input is x."""
        if x.numel() == 0:
            return
        # A clock would break a compiled graph.
        with torch.no_grad(), nullcontext() if torch.compiler.is_compiling() else spent:
            weights = self._forward.weights_of(x) if norm.over.by_token else None
            self._readings.add(place, *measure(norm, local(x.detach()), weights, self._due.layers, share))

    @property
    def watching(self) -> bool:
        """Whether a training forward is running."""
        return self._forward.training and not in_backward()

    @property
    def due(self) -> bool:
        """Whether more than the last norm is read."""
        return self._due.layers


class _Watched:
    """One norm layer, which shares its compiled graph with others of its kind."""

    def __init__(self, tap: Norms, norm: Norm, place: Place) -> None:
        self._tap = tap
        self._norm = norm
        self._place = place

    def see(self, module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Before its forward."""
        if not self._tap.watching:
            return
        share = self._call()
        if share or self._tap.due:
            self._tap.add(self._norm, self._place, args[0] if args else next(iter(kwargs.values())), share)

    @settled_by_tracing
    def _call(self) -> bool:
        return self._tap.call(self._norm.name)


def measure(
    norm: Norm, x: Tensor, weights: Tensor | None = None, layers: bool = True, share: bool = True
) -> tuple[Tensor, Tensor]:
    """One norm input: (float32[5] norm_input_msq, norm_input_var, norm_gain, token_similarity, context_share; what they
    weigh in a mean over calls: the number of groups that count).

    `weights`: 0 or 1 per token, x's shape without its last dimension; None = all count. norm_gain is the tangential
    factor of the norm's Jacobian, mean over groups of rms(gamma)/sqrt(var+eps) (Xiong et al. 2020, Lemma 3).
    context_share is that of the norm's output, on at most 256 tokens, as token_similarity is. Not readable, and so NaN:
    those two with fewer than two tokens, and at a BatchNorm or InstanceNorm, which takes away what all positions have
    in common; context_share of an output that is 0 everywhere; without `layers` the second to fourth, without `share`
    the fifth.
    """
    x = x.float()
    rows_GM = norm.over.rows(x)
    groups, size = rows_GM.shape
    w_G = weights.reshape(-1) if weights is not None and weights.numel() == groups else None
    kept_G, count = (None, rows_GM.new_full((), groups)) if w_G is None else (w_G > 0, w_G.sum())
    unread = torch.full_like(count, torch.nan)
    if layers:
        square_G, var_G = _moments(rows_GM, norm.centred)
        var_G = norm.over.divisor(norm.module, var_G)
        means = _means(torch.stack((square_G, var_G, _gain(norm, var_G, size))), kept_G, count)
    else:
        means = torch.stack((_means(_msq(rows_GM), kept_G, count), unread, unread))
    alike = left = unread
    unit_ND = normalised(norm, x, MAX_TOKENS)
    if unit_ND is not None and unit_ND.shape[0] > 1:
        kept_N = None if kept_G is None else spread(kept_G, MAX_TOKENS)
        alike = similarity(unit_ND, kept_N) if layers else unread
        left = context_share(_output(unit_ND, norm.gamma(), norm.beta()), kept_N) if share else unread
    return torch.cat((means, torch.stack((alike, left)))), count


def _gain(norm: Norm, var_G: Tensor, size: int) -> Tensor:
    """float32[G]: rms(gamma)/sqrt(var+eps)."""
    gain_G = torch.rsqrt(var_G + norm.eps)
    if norm.unit_length:
        gain_G = gain_G / size**0.5
    gamma = norm.gamma()
    if gamma is None:
        return gain_G
    rms = norm.over.rms(gamma)
    return (gain_G.reshape(-1, rms.numel()) * rms).reshape(-1)


def _output(unit_ND: Tensor, gamma: Tensor | None, beta: Tensor | None) -> Tensor:
    """What the norm returns for these tokens; gammas of several heads are taken in turn."""
    out_ND = unit_ND if gamma is None or gamma.ndim == 2 else unit_ND * gamma
    return out_ND if beta is None or beta.numel() != out_ND.shape[-1] else out_ND + beta


def _means(values: Tensor, kept_G: Tensor | None, count: Tensor) -> Tensor:
    """Over the groups, the last dimension, that count; what the others hold may be anything, since padding may.

    Inf where what was read is not finite, NaN where none counts.
    """
    if kept_G is None:
        return _finite(values.mean(-1))
    return _finite(torch.where(kept_G, values, 0.0).sum(-1)) / count


def _finite(value: Tensor) -> Tensor:
    return value.nan_to_num(torch.inf, torch.inf, torch.inf)


def _moments(x_GM: Tensor, centred: bool) -> tuple[Tensor, Tensor]:
    """float32[G]: mean square, and what the norm divides by the root of. `Tensor.var` takes ten times as long."""
    if not centred:
        square_G = _msq(x_GM)
        return square_G, square_G
    mean_G1 = x_GM.mean(-1, keepdim=True)
    var_G = _msq(x_GM - mean_G1)
    return var_G + mean_G1.squeeze(-1).square(), var_G


def _msq(x: Tensor) -> Tensor:
    """Mean square over the last dimension, in one pass and without a copy."""
    norm: Tensor = torch.linalg.vector_norm(x, dim=-1)
    return norm.square() / x.shape[-1]


def similarity(y_ND: Tensor, kept_N: Tensor | None = None) -> Tensor:
    """Mean cosine between two different tokens that count: (||sum of unit vectors||^2 - N) / (N(N - 1)).

    NaN for fewer than two of them, Inf where one is not finite.
    """
    unit_ND = torch.nn.functional.normalize(y_ND, dim=-1)
    if kept_N is None:
        tokens = y_ND.shape[0]
        return _finite((tokens * unit_ND.mean(0).square().sum() - 1) / max(tokens - 1, 1))
    number = kept_N.sum()
    total = torch.where(kept_N[:, None], unit_ND, 0.0).sum(0).square().sum()
    return torch.where(number > 1, _finite((total / number - 1) / (number - 1)), torch.nan)


def context_share(z_ND: Tensor, kept_N: Tensor | None = None) -> Tensor:
    """Part of the sum of squares that is left when the mean over the tokens that count is taken away.

    NaN where all are 0 or fewer than two count, Inf where one is not finite.
    """
    if kept_N is None:
        left, whole = z_ND - z_ND.mean(0), z_ND.square().sum()
        return torch.where(whole == 0, torch.nan, _finite(left.square().sum() / whole))
    kept_N1, number = kept_N[:, None], kept_N.sum()
    z_ND = torch.where(kept_N1, z_ND, 0.0)
    left, whole = torch.where(kept_N1, z_ND - z_ND.sum(0) / number, 0.0), z_ND.square().sum()
    return torch.where((whole == 0) | (number < 2), torch.nan, _finite(left.square().sum() / whole))
