"""The hook of a tap that reads what modules are given."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from stabmon.taps.forward import Forward, in_backward
from stabmon.taps.hooks import spent
from stabmon.taps.ranks.sharding import local


def on_input(
    forward: Forward, due: Callable[[], bool], read: Callable[[Tensor, Tensor | None], None]
) -> Callable[..., None]:
    """A forward pre-hook: `read(x, kept)` of each first input x that is not empty, in a training forward in which it is
    `due`, outside autograd and not again in the backward pass. x is the part that this rank holds, `kept` as of
    `Forward.weights_of`.
    """

    def hook(module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        if not forward.training or not due() or in_backward():
            return
        x = args[0] if args else next(iter(kwargs.values()))
        if x.numel() == 0:
            return
        # A clock would break a compiled graph.
        with torch.no_grad(), nullcontext() if torch.compiler.is_compiling() else spent:
            read(local(x.detach()), forward.weights_of(x, first=True))

    return hook
