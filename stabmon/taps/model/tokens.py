"""Which tokens count in means: no padding, and of a sequence of token ids not the first (BOS, the attention sink).

Shapes: B sequences, T positions.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

_KEPT = ("attention_mask", "decoder_attention_mask")
"""1 = a token, 0 = padding (Hugging Face)."""
_PADDED = ("src_key_padding_mask", "tgt_key_padding_mask", "key_padding_mask")
"""True, or -inf, = padding (torch)."""


@dataclass(frozen=True, slots=True)
class _Told:
    """One thing that a call says of its tokens."""

    tensor: Tensor
    """[B, T] of token ids, which count but for the first of each sequence, or of a mask."""
    padding: int | None = None
    """What stands for padding in a mask: 0, or anything but 0 (as 1). None: these are ids."""


class Tokens:
    """The weights of the current call's tokens, told by what the root, and each stack of blocks in it, is called with.

    A stack's own mask holds over the root's: an encoder's and a decoder's differ. Can be traced by torch.compile.
    """

    def __init__(self, model: nn.Module) -> None:
        attention = [m for m in model.modules() if isinstance(m, nn.MultiheadAttention)]
        self._time_first = any(not m.batch_first for m in attention)
        """Whether a norm's input is [T, B, D] and not [B, T, D]."""
        self._told: tuple[_Told, ...] = ()
        self._weights: dict[bool, tuple[Tensor, ...]] = {}
        """Made of what was told, at the first question: without and with the first tokens."""

    def begin(self, parameters: Sequence[str], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """The root is called; `parameters` are the names of its forward's."""
        given = _named(parameters, args, kwargs)
        ids = (_Told(t) for t in given.values() if _is_ids(t))
        self._told, self._weights = (*ids, *_masks(given)), {}

    def enter(self, parameters: Sequence[str], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """A stack of blocks inside the root is called."""
        given = _named(parameters, args, kwargs)
        masks = [name for name in _KEPT if name in given or name in parameters]
        ids = [t for t in given.values() if _is_ids(t)]
        if masks and ids and all(given.get(name) is None for name in masks):  # nothing is padding here
            self._told = (*self._told, _Told(ids[0]))
        self._told, self._weights = (*self._told, *_masks(given)), {}

    def forget(self) -> None:
        """The call is over, or let go of."""
        self._told, self._weights = (), {}

    def weights_of(self, x: Tensor, first: bool = False) -> Tensor | None:
        """float32 of x's shape without its last dimension, 0 or 1; None: all count. `first`: so do first tokens.

        x: [B, T, …, D], [B, H, T, D] or [B*T, D] of the current call. What has another shape than its tokens, such as
        one vector a sequence, counts whole.
        """
        grids = self._grids(first)
        if x.ndim >= 3 and (grid := _find(grids, x.shape[0], x.shape[1])) is not None:
            weights = grid.reshape(*grid.shape, *(1 for _ in x.shape[2:-1]))
        elif x.ndim == 4 and (grid := _find(grids, x.shape[0], x.shape[2])) is not None:
            weights = grid.unsqueeze(1)
        elif x.ndim == 2 and (flat := next((g for g in grids if g.numel() == x.shape[0]), None)) is not None:
            weights = flat.reshape(-1)
        else:
            return None
        return weights.to(x.device, non_blocking=True).expand(x.shape[:-1])

    @property
    def words(self) -> str:
        """Which tokens count, such as "all but padding and each sequence's first"."""
        padding = ["padding"] if any(told.padding is not None for told in self._told) else []
        first = ["each sequence's first"] if any(told.padding is None for told in self._told) else []
        return " but ".join(part for part in ("all", " and ".join(padding + first)) if part)

    def _grids(self, first: bool) -> tuple[Tensor, ...]:
        """float32[B, T] (or [T, B]) each, the surest first."""
        if first in self._weights:
            return self._weights[first]
        grids: tuple[Tensor, ...] = ()
        for told in self._told:
            made = self._of_ids(told.tensor, first) if told.padding is None else (self._of_mask(told, grids, first),)
            grids = (*made, *grids)
        # A graph that kept what it made would be another one at its second norm.
        if not torch.compiler.is_compiling():
            self._weights[first] = grids
        return grids

    def _of_ids(self, ids: Tensor, first: bool) -> tuple[Tensor, ...]:
        """1 for all positions, but for the first only if it counts, in the order of a norm's input."""
        batch, time = ids.shape
        if not self._time_first:
            return ((torch.arange(time, device=ids.device) >= int(not first)).float().expand(batch, time),)
        shapes = {(batch, time), (time, batch)}  # ids may be told in either order
        return tuple(
            (torch.arange(t, device=ids.device) >= int(not first)).float()[:, None].expand(t, b) for t, b in shapes
        )

    def _of_mask(self, told: _Told, grids: tuple[Tensor, ...], first: bool) -> Tensor:
        keep = told.tensor > 0 if told.padding == 0 else told.tensor == 0
        keep = keep.detach().T if self._time_first else keep.detach()
        if not first and _find(grids, *keep.shape) is not None:
            # The first that counts, which has padding before it where sequences are padded on the left.
            keep = keep & (keep.cumsum(int(not self._time_first)) > 1)
        return keep.float()


def _masks(given: Mapping[str, Any]) -> tuple[_Told, ...]:
    named = ((name, t) for name, t in given.items() if isinstance(t, Tensor) and t.ndim == 2)
    return tuple(_Told(t, int(name in _PADDED)) for name, t in named if name in _KEPT + _PADDED)


def _find(grids: tuple[Tensor, ...], first: int, second: int) -> Tensor | None:
    return next((g for g in grids if g.shape[0] == first and g.shape[1] == second), None)


def parameters_of(module: nn.Module) -> tuple[str, ...]:
    """Names of what its forward takes, in order."""
    taken = inspect.signature(type(module).forward).parameters.values()
    return tuple(p.name for p in taken if p.kind is p.POSITIONAL_OR_KEYWORD)[1:]


def _named(parameters: Sequence[str], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    names = [*parameters, *(f"*{i}" for i in range(len(args)))]
    return {**dict(zip(names, args, strict=False)), **kwargs}


def _is_ids(value: Any) -> bool:
    whole = isinstance(value, Tensor) and value.ndim == 2 and not value.is_floating_point()
    return whole and value.dtype != torch.bool and value.shape[0] > 0 and value.shape[1] > 1
