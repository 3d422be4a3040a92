"""What goes into the norm layers. Shapes: N tokens (pictures: positions), D features (pictures: channels)."""

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
    divisor_ND: Tensor
    """The square of what each value is divided by, before epsilon."""
    normed_ND: Tensor
    gamma_D: Tensor
    group_gamma_D: Tensor
    """Root mean square of gamma over the values that are normalised together."""
    beta_D: Tensor
    eps: float
    counts_N: Tensor
    """bool: whether the token counts."""


def rows(twin: Twin, step: Step, call: Call, name: str) -> list[Rows]:
    """One for each call of the norm in that forward."""
    key = ("rows", step.number, id(call), name)
    return twin.once(key, lambda: [_rows(twin, step, call, name, x.double()) for x in call.into(name)])


def tokens(module: nn.Module, kind: str, x: Tensor) -> Tensor:
    """[N, D] of a norm's input, whose channels may come before its positions."""
    first = kind in ("groups", "batch") or getattr(module, "data_format", "") == "channels_first"
    return (x.movedim(1, -1) if first else x).flatten(0, -2)


def _rows(twin: Twin, step: Step, call: Call, name: str, x: Tensor) -> Rows:
    module, kind = twin.norms[name]
    x_ND = tokens(module, kind, x)
    mean_ND, divisor_ND = _moments(module, kind, x, x_ND)
    weight, bias = step.before.get(f"{name}.weight"), step.before.get(f"{name}.bias")
    gamma_D = torch.ones(x_ND.shape[1]).double() if weight is None else weight.double()
    gamma_D = gamma_D + 1 if kind == "raw, 1 + weight" else gamma_D
    eps: Any = getattr(module, "eps", None) or getattr(module, "variance_epsilon", 0.0)
    return Rows(
        x_ND=x_ND,
        divisor_ND=divisor_ND,
        normed_ND=(x_ND - mean_ND) / (divisor_ND + eps).sqrt(),
        gamma_D=gamma_D,
        group_gamma_D=_over_groups(module, kind, gamma_D),
        beta_D=torch.zeros_like(gamma_D) if bias is None else bias.double(),
        eps=eps,
        counts_N=_counting(call, kind, x, len(x_ND)),
    )


def _counting(call: Call, kind: str, x: Tensor, rows: int) -> Tensor:
    """bool[N]: the norms of pictures have no padding, nor ConvNeXt's, whose positions are no tokens."""
    counts = counting(call, x.shape[:-1]).flatten()
    return counts if len(counts) == rows and kind not in ("groups", "batch") else torch.ones(rows, dtype=torch.bool)


def _moments(module: nn.Module, kind: str, x: Tensor, x_ND: Tensor) -> tuple[Tensor, Tensor]:
    """What is subtracted from each value, and the square of what it is divided by; [N, D]."""
    if kind == "groups":
        grouped = x.unflatten(1, (_groups(module), -1)).flatten(2)
        moments = grouped.mean(-1, keepdim=True), grouped.var(-1, correction=0, keepdim=True)
        mean_ND, divisor_ND = (tokens(module, kind, v.expand_as(grouped).reshape(x.shape)) for v in moments)
        return mean_ND, divisor_ND
    if kind == "batch":
        return x_ND.mean(0).expand_as(x_ND), x_ND.var(0, correction=0).expand_as(x_ND)
    mean_N1 = x_ND.mean(-1, keepdim=True) if kind == "centred" else torch.zeros(len(x_ND), 1).double()
    divisor_N1 = (x_ND - mean_N1).square().mean(-1, keepdim=True)
    return mean_N1.expand_as(x_ND), divisor_N1.expand_as(x_ND)


def _groups(module: nn.Module) -> int:
    return int(getattr(module, "num_groups", 1))


def _over_groups(module: nn.Module, kind: str, gamma_D: Tensor) -> Tensor:
    groups = {"groups": _groups(module), "batch": len(gamma_D)}.get(kind, 1)
    rms_G1: Tensor = gamma_D.reshape(groups, -1).square().mean(-1, keepdim=True).sqrt()
    return rms_G1.expand(groups, len(gamma_D) // groups).flatten()


def _mean(twin: Twin, step: Step, name: str, measure: Callable[[Rows], Tensor]) -> float:
    """Over all tokens of the step that count; `measure` gives one number for each."""
    found = [measure(of_call)[of_call.counts_N] for call in step.calls for of_call in rows(twin, step, call, name)]
    return float(torch.cat(found).mean())


def norm_input_msq(twin: Twin, step: Step) -> Values:
    """||x||^2 / D."""
    return {name: _mean(twin, step, name, lambda r: r.x_ND.square().mean(-1)) for name in twin.norms}


def norm_input_var(twin: Twin, step: Step) -> Values:
    """What it divides by."""
    return {name: _mean(twin, step, name, lambda r: r.divisor_ND.mean(-1)) for name in twin.norms}


def norm_gain(twin: Twin, step: Step) -> Values:
    """rms(gamma) / sqrt(var + eps)."""

    def gain_N(r: Rows) -> Tensor:
        return (r.group_gamma_D / (r.divisor_ND + r.eps).sqrt()).mean(-1)

    return {name: _mean(twin, step, name, gain_N) for name in twin.norms}


def token_similarity(twin: Twin, step: Step) -> Values:
    """Mean cosine of all pairs of different tokens of a call; nothing at a BatchNorm, which takes their mean away."""
    found = {}
    for name, (_, kind) in twin.norms.items():
        found[name] = float("nan") if kind == "batch" else _by_calls(twin, step, name, _pairs)
    return found


def _pairs(of_call: Rows) -> float:
    unit_ND = of_call.normed_ND[of_call.counts_N]
    unit_ND = unit_ND / unit_ND.norm(dim=-1, keepdim=True)
    cosines_NN = unit_ND @ unit_ND.T
    return float(cosines_NN.sum() - cosines_NN.diagonal().sum()) / (len(unit_ND) * (len(unit_ND) - 1))


def _by_calls(twin: Twin, step: Step, name: str, measure: Callable[[Rows], float]) -> float:
    """Mean over the calls of a step, weighted by their tokens."""
    calls = [of_call for call in step.calls for of_call in rows(twin, step, call, name)]
    counts = [int(of_call.counts_N.sum()) for of_call in calls]
    return sum(n * measure(of_call) for n, of_call in zip(counts, calls, strict=True)) / sum(counts)


def final_norm_input_msq(twin: Twin, step: Step) -> Values:
    """Of the norm that was called last."""
    return {"": norm_input_msq(twin, step)[_last(twin, step)]}


def context_share(twin: Twin, step: Step) -> Values | str:
    """What is left of the last norm's output when its mean over the tokens is taken away."""
    last = _last(twin, step)
    if twin.norms[last][1] == "batch":
        return "a BatchNorm takes away what all positions have in common"
    return {"": _by_calls(twin, step, last, _share)}


def _share(of_call: Rows) -> float:
    z_ND = (of_call.normed_ND * of_call.gamma_D + of_call.beta_D)[of_call.counts_N]
    return float((z_ND - z_ND.mean(0)).square().sum() / z_ND.square().sum())


def _last(twin: Twin, step: Step) -> str:
    return [name for name in step.calls[0].inputs if name in twin.norms][-1]


NAIVE: dict[str, Callable[[Twin, Step], Values | str]] = {
    function.__name__: function
    for function in (
        norm_input_msq, norm_input_var, norm_gain, token_similarity, final_norm_input_msq, context_share,
    )
}  # fmt: skip
