"""Other tensors in the place of a model's parameters and buffers, while something is done."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from typing import TypeVar

import torch
from torch import Tensor, nn

_T = TypeVar("_T")


def swapped(model: nn.Module, tensors: Mapping[int, Tensor], do: Callable[[], _T]) -> _T:
    """What `do` returns while the model holds these, by the id of the parameter or buffer in whose place they are. One
    in several places is swapped in each of them, one that the model no longer has in none.

    Places are listed here, each module's once, since with `tie_weights` torch lists a module that has two names (a
    block that is applied twice, an alias of a layer) under both: it is swapped twice, and what is then put back is not
    the model's own parameter.
    """
    root = _Root(model, do)
    found: _T = torch.func.functional_call(
        root, {place: tensors[id(t)] for place, t in _places(root) if id(t) in tensors}, (), tie_weights=False
    )
    return found


def _places(root: nn.Module) -> Iterator[tuple[str, Tensor]]:
    for name, module in root.named_modules():
        for attribute, tensor in chain(module._parameters.items(), module._buffers.items()):
            if tensor is not None:
                yield f"{name}.{attribute}", tensor


class _Root(nn.Module):
    """All of it is done while the tensors are swapped in: a backward pass that recomputes a forward needs them, too."""

    def __init__(self, model: nn.Module, do: Callable[[], object]) -> None:
        super().__init__()
        self.model = model
        self._do = do

    def forward(self) -> object:
        return self._do()
