"""Attention and routers of experts. Shapes: B sequences, H heads, T queries, S keys."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from stabmon.bench.exact.naive.tokens import counting
from stabmon.bench.exact.twin import Step, Twin

Values = dict[str, float]

_HIDDEN = -1e4
"""A score at or below this is that of a key that the query does not see."""
_NONE = "no attention in this model"
_COMPILED = "attention is not seen in compiled models"


def _seen(twin: Twin, step: Step) -> Iterator[tuple[str, Tensor, Tensor]]:
    """(layer, scores[H, S], entropy / ln(keys)[H], NaN where there is one key) of each query that is looked at: those
    of the first and of a middle sequence that are no padding."""
    for call in step.calls:
        for attention in call.attention:
            sequences, _, queries, _ = attention.logits.shape
            counts = counting(call, torch.Size((sequences, queries)), first=True)
            for b in sorted({0, sequences // 2}):
                for t in range(queries):
                    if counts[b, t]:
                        yield attention.module, *_query(attention.logits[b, :, t])


def _query(scores_HS: Tensor) -> tuple[Tensor, Tensor]:
    entropies = []
    for scores_S in scores_HS:
        visible = scores_S[scores_S > _HIDDEN]
        p = torch.softmax(visible, 0)
        entropies.append(-(p * p.log()).sum() / math.log(len(visible)) if len(visible) > 1 else torch.tensor(math.nan))
    return scores_HS, torch.stack(entropies)


def attention_logit_max(twin: Twin, step: Step) -> Values | str:
    """Largest score."""
    found: dict[str, float] = {}
    for layer, scores_HS, _ in _seen(twin, step):
        found[layer] = max(found.get(layer, -math.inf), float(scores_HS.max()))
    return found or _NONE


def attention_entropy(twin: Twin, step: Step) -> Values | str:
    """Mean over heads and queries."""
    return {layer: float(mean_H.mean()) for layer, mean_H in _entropies(twin, step).items()} or _NONE


def attention_entropy_min(twin: Twin, step: Step) -> Values | str:
    """Of the head with the lowest, by micro-batches."""
    weighted: dict[str, float] = defaultdict(float)
    queries: dict[str, float] = defaultdict(float)
    for call in step.calls:
        alone = Step(**{**vars(step), "calls": [call]})
        for layer, found in _by_layer(twin, alone).items():
            weighted[layer] += len(found) * float(found.mean(0).min())
            queries[layer] += len(found)
    return {layer: value / queries[layer] for layer, value in weighted.items()} or _NONE


def _entropies(twin: Twin, step: Step) -> dict[str, Tensor]:
    """By layer: mean over queries, float64[H]."""
    return {layer: found.mean(0) for layer, found in _by_layer(twin, step).items()}


def _by_layer(twin: Twin, step: Step) -> dict[str, Tensor]:
    """float64[queries that see several keys, H]"""
    found: dict[str, list[Tensor]] = defaultdict(list)
    for layer, _, entropy_H in _seen(twin, step):
        if not entropy_H.isnan().any():
            found[layer].append(entropy_H.double())
    return {layer: torch.stack(entropies) for layer, entropies in found.items()}


def _loads(twin: Twin, step: Step) -> dict[str, list[int]]:
    """Tokens of each expert, by router: the experts with the largest logits, for tokens that are no padding."""
    found = {}
    for name in step.calls[0].outputs:
        if not name.endswith(".gate"):
            continue
        chosen: Counter[int] = Counter()
        for call in step.calls:
            for x, logits in zip(call.into(name), call.out_of(name), strict=True):
                counts = counting(call, x.shape[:-1], first=True).flatten()
                for row in logits.flatten(0, -2)[counts]:
                    chosen.update(row.float().topk(2).indices.tolist())
        found[name] = [chosen[expert] for expert in range(logits.shape[-1])]
    return found


def _of_loads(measure: Callable[[list[int]], float]) -> Callable[[Twin, Step], Values | str]:
    def naive(twin: Twin, step: Step) -> Values | str:
        return {name: measure(load) for name, load in _loads(twin, step).items()} or "no experts in this model"

    return naive


def _entropy(load: list[int]) -> float:
    return -sum(n / sum(load) * math.log(n / sum(load)) for n in load if n) / math.log(len(load))


def _unless_compiled(naive: Callable[[Twin, Step], Values | str]) -> Callable[[Twin, Step], Values | str]:
    return lambda twin, step: _COMPILED if twin.plan.loop.compiled else naive(twin, step)


NAIVE: dict[str, Callable[[Twin, Step], Values | str]] = {
    "attention_logit_max": _unless_compiled(attention_logit_max),
    "attention_entropy": _unless_compiled(attention_entropy),
    "attention_entropy_min": _unless_compiled(attention_entropy_min),
    "router_load_max": _of_loads(lambda load: max(load) / (sum(load) / len(load))),
    "router_entropy": _of_loads(_entropy),
    "dead_experts": _of_loads(lambda load: load.count(0) / len(load)),
}
