"""Models, and a naive float64 computation of their attention from the queries and keys that they made themselves."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import sdpa_mask

from stabmon.records import Site
from stabmon.settings import Settings
from stabmon.taps import Due, Tap
from stabmon.taps.parts import Parts, examine

Values = dict[tuple[str, str], float]


def parts_of(model: nn.Module) -> Parts:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return examine(model, [optimizer], Settings())


def read(tap: Tap) -> Values:
    values = tap.read()
    assert values.dtype == torch.float32
    return {(statistic, site.name): v for (statistic, site), v in zip(tap.columns(), values.tolist(), strict=True)}


def measured(make: Callable[[Parts], Tap], model: nn.Module, *calls: Callable[[nn.Module], Any]) -> Values:
    """One step of these training forwards."""
    parts = parts_of(model)
    tap = make(parts)
    tap.arm(Due(layers=True))
    for call in calls:
        call(model)
    found = read(tap)
    tap.detach()
    parts.norm_tap.detach()
    parts.forward.detach()
    return found


def sites(tap: Tap) -> list[Site]:
    return list(dict.fromkeys(site for _, site in tap.columns()))


def naive(scores: Tensor, counted: Tensor | None = None) -> tuple[float, float, float]:
    """[largest score, mean entropy / ln(visible keys), lowest head's] of scores [N, H, T, S], hidden ones -inf."""
    largest, by_head = -math.inf, [[] for _ in range(scores.shape[1])]  # type: list[list[float]]
    for n, h, t in torch.cartesian_prod(*(torch.arange(size) for size in scores.shape[:3])).tolist():
        row = scores[n, h, t].double()
        row = row[row > -1e9]
        if (counted is not None and not counted[n, t]) or len(row) == 0:
            continue
        largest = max(largest, float(row.max()))
        if len(row) > 1:
            p = (row - row.max()).exp()
            p = p / p.sum()
            by_head[h].append(-float((p * p.clamp(min=1e-300).log()).sum()) / math.log(len(row)))
    means = [sum(head) / len(head) for head in by_head]
    every = [value for head in by_head for value in head]
    return largest, sum(every) / len(every), min(means)


@dataclass
class Recorder:
    """Queries, keys, masks of a transformers model, by module: a naive kernel that remembers."""

    scores: dict[int, list[Tensor]] = field(default_factory=dict)

    def __enter__(self) -> Recorder:
        AttentionInterface.register("recorded", self._attend)
        AttentionMaskInterface.register("recorded", sdpa_mask)
        return self

    def __exit__(self, *_: object) -> None:
        AttentionInterface._global_mapping.pop("recorded")
        AttentionMaskInterface._global_mapping.pop("recorded")

    def _attend(
        self, module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **given: Any
    ) -> tuple[Tensor, None]:
        scores = self._scores(module, query, key, attention_mask, given)
        self.scores.setdefault(id(module), []).append(scores)
        value = value.repeat_interleave(query.shape[1] // value.shape[1], dim=1)
        return (scores.softmax(-1) @ value.double()).to(value.dtype).transpose(1, 2).contiguous(), None

    def _scores(
        self, module: nn.Module, query: Tensor, key: Tensor, mask: Tensor | None, given: dict[str, Any]
    ) -> Tensor:
        key = key.repeat_interleave(query.shape[1] // key.shape[1], dim=1)
        query, key = query.detach(), key.detach()
        scale = given.get("scaling") or query.shape[-1] ** -0.5
        found = torch.einsum("nhtd,nhsd->nhts", query.double(), key.double()) * scale
        if (cap := given.get("softcap")) is not None:
            found = (found / cap).tanh() * cap
        if (bias := given.get("position_bias")) is not None:
            found = found + bias.detach().double()
        causal = given.get("is_causal")
        if mask is not None:
            shown = mask if mask.dtype == torch.bool else mask == 0
            assert mask.dtype == torch.bool or bool((shown | (mask < -1e9)).all())
            return found.masked_fill(~shown, -math.inf)
        if getattr(module, "is_causal", True) if causal is None else causal:
            return found.masked_fill(~torch.ones(found.shape[-2:], dtype=torch.bool).tril(), -math.inf)
        return found
