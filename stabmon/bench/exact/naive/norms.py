"""What goes into the norm layers. Shapes: N tokens, D features."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from stabmon.bench.exact.naive.tokens import counting
from stabmon.bench.exact.twin import Call, Step, Twin

Values = dict[str, float]


@dataclass
class Rows:
    """The input of one call of a norm, token by token; float64."""

    x_ND: Tensor
    divisor_N: Tensor
    """Mean square of what each token is divided by the root of, before epsilon."""
    normed_ND: Tensor
    gamma_D: Tensor
    beta_D: Tensor
    eps: float
    counts_N: Tensor
    """bool: whether the token counts."""


def rows(twin: Twin, step: Step, call: Call, name: str) -> list[Rows]:
    """One for each call of the norm in that forward."""
    module, kind = twin.norms[name]
    return [_rows(twin, step, call, name, module, kind, x.double()) for x in call.into(name)]


def _rows(twin: Twin, step: Step, call: Call, name: str, module: nn.Module, kind: str, x: Tensor) -> Rows:
    gamma = step.before.get(f"{name}.weight")
    beta = step.before.get(f"{name}.bias")
    eps = float(getattr(module, "eps", None) or getattr(module, "variance_epsilon", None) or 0.0)
    first = kind in ("groups", "batch") or getattr(module, "data_format", "") == "channels_first"
    x_ND = (x.movedim(1, -1) if first else x).flatten(0, -2)
    if kind == "groups":
        groups: Any = module
        grouped = x.unflatten(1, (groups.num_groups, -1)).flatten(2)
        mean, divisor = grouped.mean(-1, keepdim=True), grouped.var(-1, correction=0, keepdim=True)
        mean_ND, divisor_ND = (
            value.expand_as(grouped).reshape(x.shape).movedim(1, -1).flatten(0, -2) for value in (mean, divisor)
        )
    elif kind == "batch":
        mean_ND = x_ND.mean(0).expand_as(x_ND)
        divisor_ND = x_ND.var(0, correction=0).expand_as(x_ND)
    else:
        mean_ND = x_ND.mean(-1, keepdim=True).expand_as(x_ND) if kind == "centred" else torch.zeros_like(x_ND)
        divisor_ND = (x_ND - mean_ND).square().mean(-1, keepdim=True).expand_as(x_ND)
    gamma_D = torch.ones(x_ND.shape[-1]).double() if gamma is None else gamma.double()
    return Rows(
        x_ND=x_ND,
        divisor_N=divisor_ND.mean(-1),
        normed_ND=(x_ND - mean_ND) / (divisor_ND + eps).sqrt(),
        gamma_D=gamma_D + 1 if kind == "raw, 1 + weight" else gamma_D,
        beta_D=torch.zeros_like(gamma_D) if beta is None else beta.double(),
        eps=eps,
        counts_N=counting(twin, call, name, x, x_ND.shape[0]),
    )


def _mean(twin: Twin, step: Step, name: str, measure: Callable[[Rows], Tensor]) -> float:
    """Over all tokens of the step that count; `measure` gives one number for each."""
    found = [measure(of_call)[of_call.counts_N] for call in step.calls for of_call in rows(twin, step, call, name)]
    return float(torch.cat(found).mean())


def norm_input_msq(twin: Twin, step: Step) -> Values:
    """||x||^2 / D."""
    return {name: _mean(twin, step, name, lambda r: r.x_ND.square().mean(-1)) for name in twin.norms}


def norm_input_var(twin: Twin, step: Step) -> Values:
    """What it divides by."""
    return {name: _mean(twin, step, name, lambda r: r.divisor_N) for name in twin.norms}


def norm_gain(twin: Twin, step: Step) -> Values:
    """rms(gamma) / sqrt(var + eps)."""
    return {
        name: _mean(twin, step, name, lambda r: r.gamma_D.square().mean().sqrt() / (r.divisor_N + r.eps).sqrt())
        for name in twin.norms
    }


def token_similarity(twin: Twin, step: Step) -> Values:
    """Mean cosine of all pairs of different tokens of a call, averaged over the calls by their tokens."""
    found = {}
    for name in twin.norms:
        weighted = total = 0.0
        for call in step.calls:
            for of_call in rows(twin, step, call, name):
                unit_ND = of_call.normed_ND[of_call.counts_N]
                unit_ND = unit_ND / unit_ND.norm(dim=-1, keepdim=True)
                tokens = len(unit_ND)
                cosines_NN = unit_ND @ unit_ND.T
                pairs = float(cosines_NN.sum() - cosines_NN.diagonal().sum()) / (tokens * (tokens - 1))
                weighted, total = weighted + tokens * pairs, total + tokens
        found[name] = weighted / total
    return found


def final_norm_input_msq(twin: Twin, step: Step) -> Values:
    """Of the norm that was called last."""
    return {"": norm_input_msq(twin, step)[_last(twin, step)]}


def context_share(twin: Twin, step: Step) -> Values:
    """1 - (variance of the mean token) / (variance of all), of the last norm's output, by calls as above."""
    weighted = total = 0.0
    for call in step.calls:
        for of_call in rows(twin, step, call, _last(twin, step)):
            z_ND = (of_call.normed_ND * of_call.gamma_D + of_call.beta_D)[of_call.counts_N]
            share = float((z_ND - z_ND.mean(0)).square().sum() / z_ND.square().sum())
            weighted, total = weighted + len(z_ND) * share, total + len(z_ND)
    return {"": weighted / total}


def _last(twin: Twin, step: Step) -> str:
    called = [name for name in step.calls[0].inputs if name in twin.norms]
    return called[-1]


NAIVE = {
    function.__name__: function
    for function in (
        norm_input_msq, norm_input_var, norm_gain, token_similarity, final_norm_input_msq, context_share
    )
}  # fmt: skip
