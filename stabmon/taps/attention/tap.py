"""How sharp every attention layer is: the largest score that its softmax is given, and the entropy of its weights.

Seen while an attention layer's forward runs, from the arguments of `scaled_dot_product_attention`, of
`nn.MultiheadAttention` and of `softmax`: own products of queries and keys for a few queries, or the model's own scores.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from stabmon.records import Site
from stabmon.taps import Due
from stabmon.taps.attention.calls import READERS, Reader
from stabmon.taps.attention.scores import Sample, summary
from stabmon.taps.compiled import tracing
from stabmon.taps.forward import in_backward
from stabmon.taps.hooks import Hook, spent, transformed
from stabmon.taps.model.places import sublayer_sites
from stabmon.taps.notices import Notice
from stabmon.taps.parts import Parts
from stabmon.taps.readings import Readings

STATISTICS = ("attention_logit_max", "attention_entropy", "attention_entropy_min")

_CLASS = re.compile(r"att(entio)?n|multi_?head|^mha$", re.IGNORECASE)
_FUSED = re.compile(r"qkv|c_attn|query_key_value", re.IGNORECASE)
_HEADS = ("num_heads", "n_heads", "n_head", "num_attention_heads", "heads", "h")
_QUERY = re.compile(r"^(q|query|to_q|wq|q_?proj(ection)?|q_lin(ear)?|query_proj)$", re.IGNORECASE)


class Attention:
    """Watches, in eager training forwards of steps where layers are due, what attention layers call; in the first step
    which ones do so.

    A function mode is on for just so long: outside these forwards, and in compiled graphs, there is none of it.
    """

    name = "attention"

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._names = [name for name, module in parts.model.named_modules() if is_attention(module)]
        self._readings = Readings(len(self._names), ("max", "mean", "mean"), parts.device)
        self._due = Due(layers=True)
        self._error: Exception | None = None
        self._open: list[_Watch] = []
        self._seen: set[int] = set()
        self._order: Tensor | None = None
        self._handles = []
        for place, name in enumerate(self._names):
            module = parts.model.get_submodule(name)
            enter, leave = (
                Hook(self._entering(place, _heads(module)), self._fail),
                Hook(self._leaving(place), self._fail),
            )
            self._handles += [
                module.register_forward_pre_hook(enter),
                module.register_forward_hook(leave, always_call=True),
            ]

    def columns(self) -> Sequence[tuple[str, Site]]:
        names = [self._names[place] for place in sorted(self._seen)]
        sites = sublayer_sites(names, self._parts.blocks, self._parts.norm_tap.sites).values()
        return [(statistic, site) for site in sites for statistic in STATISTICS]

    def arm(self, due: Due) -> None:
        self._due = due
        self._close_left()
        self._readings.clear()

    def read(self) -> Tensor:
        return self._ordered(self._readings.values())

    def weights(self) -> Tensor:
        return self._ordered(self._readings.weights())

    def detach(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        self._close_left()

    def _close_left(self) -> None:
        """Take off the modes of layers that were left by Ctrl-C, for which torch calls no hook."""
        while self._open:
            watch = self._open.pop()
            depth = _depth()
            if depth and _mode_at(depth - 1) is watch:
                watch.__exit__(None, None, None)  # type: ignore[no-untyped-call]

    def _ordered(self, values: Tensor) -> Tensor:
        if self._error is not None:
            raise self._error
        if self._order is None:
            self._settle()
        assert self._order is not None
        return values.index_select(0, self._order).reshape(-1)

    def _settle(self) -> None:
        """The first step is over: layers that were not seen in it are not watched."""
        self._order = torch.tensor(sorted(self._seen), dtype=torch.long, device=self._parts.device)
        seen = [self._names[place] for place in sorted(self._seen)]
        unseen = [n for n in self._names if not any(_related(n, other) for other in seen)]
        if unseen:
            where = ", ".join(unseen[:8]) + (f" and {len(unseen) - 8} more" if len(unseen) > 8 else "")
            why = "it is compiled, was not called in the first step, or has a kernel of its own (Flash, Flex)"
            self._parts.notices.say(
                Notice(
                    f"attention is not seen in {where}: {why}",
                    what=f"attention in {where}",
                    why=f"{why[0].upper()}{why[1:]}.",
                    todo="Where it matters, train some steps with torch's own attention (sdpa or eager).",
                )
            )

    def _fail(self, error: Exception) -> None:
        self._error = error

    def _entering(self, place: int, heads: int | None) -> Callable[..., None]:
        def enter(*_: Any) -> None:
            if torch.compiler.is_compiling() or tracing.on or not self._parts.forward.training:
                return
            if not self._due.layers and self._order is not None:
                return
            if self._error is None and not in_backward():
                watch = _Watch(self, place, heads)
                watch.__enter__()  # type: ignore[no-untyped-call]
                self._open.append(watch)

        return enter

    def _leaving(self, place: int) -> Callable[..., None]:
        def leave(*_: Any) -> None:
            if not torch.compiler.is_compiling() and self._open and self._open[-1].place == place:
                self._open.pop().__exit__(None, None, None)  # type: ignore[no-untyped-call]

        return leave

    def see(self, watch: _Watch, scores: Reader, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """A function was called that has scores in it, in the forward of the innermost layer that is watched."""
        if self._error is not None or not self._open or self._open[-1] is not watch or transformed():
            return
        try:
            with spent, torch.no_grad(), torch.autocast(self._parts.device.type, enabled=False):
                found = scores(watch.heads, *args, **kwargs)
                if found is not None:
                    self._add(watch.place, *found)
        except Exception as error:  # it would come out of the user's forward
            self._error = error

    def _add(self, place: int, scores: Tensor, sample: Sample, tokens: Tensor) -> None:
        if self._order is None:
            self._seen.add(place)
        if scores.numel() == 0 or not self._due.layers:
            return
        counted = self._counted(tokens)
        values, queries = summary(scores, None if counted is None else sample.of(counted.unsqueeze(-1)).squeeze(-1))
        self._readings.add(place, values, queries)

    def _counted(self, tokens: Tensor) -> Tensor | None:
        """[N, T]; None: all count."""
        weights = self._parts.forward.weights_of(tokens, first=True)
        turned = self._parts.forward.weights_of(tokens.transpose(0, 1), first=True) if weights is None else None
        return weights if turned is None else turned.T


_depth: Callable[[], int] = torch._C._len_torch_function_stack
_mode_at: Callable[[int], object] = torch._C._get_function_stack_at


class _Watch(TorchFunctionMode):
    """On while one attention layer's forward runs."""

    def __init__(self, tap: Attention, place: int, heads: int | None) -> None:
        super().__init__()
        self._tap = tap
        self.place = place
        self.heads = heads

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if not torch.compiler.is_compiling() and (reader := READERS.get(func)) is not None:
            self._tap.see(self, reader, args, kwargs)
        return func(*args, **kwargs)


def is_attention(module: nn.Module) -> bool:
    """By its class, or because it has projections to queries and keys among its children."""
    children = [name for name, _ in module.named_children()]
    return bool(_CLASS.search(type(module).__name__)) or any(_FUSED.search(c) or _QUERY.match(c) for c in children)


def _heads(module: nn.Module) -> int | None:
    found = (getattr(module, name, None) for name in _HEADS)
    return next((value for value in found if isinstance(value, int)), None)


def _related(name: str, other: str) -> bool:
    """Whether one of the two modules is or holds the other."""
    return f"{name}.".startswith(f"{other}.") or f"{other}.".startswith(f"{name}.")
