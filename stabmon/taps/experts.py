"""How evenly the routers of mixtures of experts spread their tokens.

Shapes: N tokens, D features, E experts, K choices of a token.
"""

from __future__ import annotations

import inspect
import logging
import math
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from stabmon.records import Site
from stabmon.taps import Due
from stabmon.taps.forward import in_backward
from stabmon.taps.hooks import Hook, spent
from stabmon.taps.model.places import sublayer_sites
from stabmon.taps.parts import Parts
from stabmon.taps.probe.calls import tensors_in

STATISTICS = ("router_load_max", "router_entropy", "dead_experts")

_log = logging.getLogger("stabmon")

_ROUTER = re.compile(r"^(gate|router|gating|wg)$")
_EXPERTS = re.compile(r"^(routed_)?experts?$")
_COUNT = ("num_experts", "n_routed_experts", "num_local_experts", "n_experts")
_TOP_K = ("top_k", "topk", "num_experts_per_tok", "num_selected_experts", "moe_top_k", "k")


@dataclass(frozen=True)
class Router:
    """A router, and where its choices are seen."""

    name: str
    experts: int
    module: nn.Module
    """The experts, where they are told the choices, else the router itself."""
    told: bool
    """Whether the choices are an argument of `module`, and not its result."""
    top_k: int | None
    """How many of the largest logits are chosen, where the logits are all that the router returns."""


class Experts:
    """Counts, on the device, how many tokens each expert was chosen for in the step's training forwards."""

    name = "experts"

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._routers = find_routers(parts.model)
        sizes = [router.experts for router in self._routers]
        self._counts = [torch.zeros(size, dtype=torch.float32, device=parts.device) for size in sizes]
        self._due = Due(layers=True)
        self._error: Exception | None = None
        self._blind: dict[str, None] = {}
        """Routers whose choices were not found, which is told once."""
        self._told = False
        self._handles = []
        for router, counts in zip(self._routers, self._counts, strict=True):
            hook = Hook(self._hook(router, counts), self._fail)
            self._handles.append(router.module.register_forward_hook(hook, with_kwargs=True))

    def columns(self) -> Sequence[tuple[str, Site]]:
        names = [router.name for router in self._routers]
        sites = sublayer_sites(names, self._parts.blocks, self._parts.norm_tap.sites).values()
        return [(statistic, site) for site in sites for statistic in STATISTICS]

    def arm(self, due: Due) -> None:
        self._due = due
        for counts in self._counts:
            counts.zero_()

    def read(self) -> Tensor:
        if self._error is not None:
            raise self._error
        if self._blind and not self._told:
            self._told = True
            _log.warning("stabmon: which experts are chosen is not seen in %s", ", ".join(self._blind))
        found = [load(counts) for counts in self._counts]
        return torch.cat(found) if found else torch.zeros(0, dtype=torch.float32, device=self._parts.device)

    def weights(self) -> Tensor | float:
        if not self._counts:
            return 1.0
        return torch.stack([counts.sum() for counts in self._counts]).repeat_interleave(len(STATISTICS))

    def detach(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def _fail(self, error: Exception) -> None:
        self._error = error

    def _hook(self, router: Router, counts: Tensor) -> Callable[..., None]:
        def hook(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
            if not (self._due.layers and self._parts.forward.training) or in_backward():
                return
            # A clock would break a compiled graph.
            with torch.no_grad(), nullcontext() if torch.compiler.is_compiling() else spent:
                given = list(tensors_in((args, kwargs)))
                x = next((t for t in given if t.is_floating_point() and t.ndim >= 2), None)
                seen = [t for t in given if t is not x] if router.told else list(tensors_in(output))
                chosen = None if x is None else choices(router, x.shape[:-1].numel(), seen)
                if x is not None and chosen is not None:
                    weights = self._parts.forward.weights_of(x, first=True)
                    add(counts, chosen, None if weights is None else weights.reshape(-1))
                elif not torch.compiler.is_compiling():
                    self._blind[router.name] = None

        return hook


def find_routers(model: nn.Module) -> list[Router]:
    """Every module named gate or router that has experts beside it."""
    return [router for name, module in model.named_modules() for router in _routers_in(name, module)]


def is_experts(name: str) -> bool:
    """Whether a module's part of that name holds experts."""
    return bool(_EXPERTS.match(name))


def _routers_in(name: str, module: nn.Module) -> Iterator[Router]:
    children = dict(module.named_children())
    experts = next((child for key, child in children.items() if is_experts(key)), None)
    for key, router in children.items():
        if experts is None or not _ROUTER.match(key):
            continue
        owners = (router, module, experts, getattr(module, "config", None))
        count = _whole(owners, _COUNT) or next((p.shape[0] for p in router.parameters() if p.ndim == 2), None)
        top_k = _whole(owners, _TOP_K)
        told = len(_taken_by(experts)) >= 2
        if count is not None and count > 1:
            yield Router(f"{name}.{key}" if name else key, count, experts if told else router, told, top_k)


def _taken_by(module: nn.Module) -> list[str]:
    """Names of what its forward takes."""
    taken = inspect.signature(type(module).forward).parameters.values()
    return [p.name for p in taken if p.kind is p.POSITIONAL_OR_KEYWORD][1:]


def _whole(owners: Sequence[object], names: Sequence[str]) -> int | None:
    found = (getattr(owner, name, None) for owner in owners for name in names)
    return next((value for value in found if isinstance(value, int) and not isinstance(value, bool)), None)


def choices(router: Router, tokens: int, seen: Sequence[Tensor]) -> Tensor | None:
    """What was chosen for each of N `tokens`: indices int64[N, K], or a row of 0 and 1, float32[N, E].

    From the first integers seen of which there are as many for each token, whatever their shape; else from the first
    floating tensor of E numbers a token, the logits. None: neither is there.
    """
    wide = router.experts
    for whole in seen:
        if whole.is_floating_point() or whole.dtype == torch.bool or not tokens or whole.numel() % tokens:
            continue
        per_token = whole.numel() // tokens
        if whole.shape[-1:] == (wide,) and per_token == wide:
            return whole.reshape(tokens, wide).float()
        if 0 < per_token < wide:
            return whole.reshape(tokens, per_token)
    logits = next((t for t in seen if t.is_floating_point() and t.shape[-1:] == (wide,)), None)
    if logits is None or router.top_k is None or logits.numel() != tokens * wide:
        return None
    return logits.detach().reshape(tokens, wide).topk(min(router.top_k, wide), dim=-1).indices


def add(counts: Tensor, chosen: Tensor, weights: Tensor | None) -> None:
    """Count each token (as its weight, float32[N]) for the experts that were chosen for it, in place."""
    if weights is None:
        weights = torch.ones(len(chosen), dtype=torch.float32, device=chosen.device)
    if chosen.is_floating_point():
        found = (chosen * weights.unsqueeze(-1)).sum(0)
    else:
        # One more, for what is no expert of this rank: an index behind the last, or -1 for a token that was dropped.
        # Another index would be an error of the device, which ends the training.
        slots = torch.zeros(len(counts) + 1, dtype=torch.float32, device=chosen.device)
        known = torch.where((chosen >= 0) & (chosen < len(counts)), chosen.long(), len(counts))
        found = slots.index_add(0, known.reshape(-1), weights.repeat_interleave(chosen.shape[-1]))[:-1]
    counts += found.to(counts.device, non_blocking=True)


def load(counts: Tensor) -> Tensor:
    """float32 [router_load_max, router_entropy, dead_experts] of tokens per expert, float32[E]; NaN without a token."""
    share = counts / counts.sum()
    entropy = -torch.xlogy(share, share).sum() / math.log(len(counts))
    found = torch.stack((share.amax() * len(counts), entropy, (counts == 0).float().mean()))
    return torch.where(counts.sum() > 0, found, torch.nan)
