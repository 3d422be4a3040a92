"""The models that are watched: tiny, with random weights, one of each family."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from typing import Literal

import torch
from torch import Tensor, nn

Batch = dict[str, Tensor]
Kind = Literal["centred", "raw", "raw, 1 + weight", "groups", "batch"]
"""What a norm divides by: the deviation or the length of a token's features, that of a group of channels, or that of
a channel over the batch; and what it multiplies by."""


@dataclass(frozen=True)
class Family:
    """One family of models."""

    name: str
    make: Callable[[], nn.Module]
    batch: Callable[[torch.Generator, int, bool], Batch]
    """(random numbers, how long, whether some of it is padding) -> keywords of a call."""
    norms: Mapping[str, Kind]
    """Names of the classes of its norm layers."""
    blocks: Sequence[str]
    """Names of its blocks, as regular expressions."""
    sums: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """Where a block adds to its residual stream: sub-layer -> (the stream, what is added), each as `in:module` or
    `out:module` of the block, `in:` being the block's own input. What is added may also be the `change` of the stream
    from the block's input to its output, where an activation comes after the sum."""
    no_sums: str = ""
    """Why none is seen."""
    padded: bool = False
    """Whether it takes an attention mask."""
    dropout: bool = False
    """Then only loops that draw the same random numbers as the second computation are comparable."""
    shifts: bool = False
    """Whether a label is that of the next position."""
    counts: bool = False
    """Whether it divides its loss by a number of targets that the loop counts."""


def families() -> tuple[list[Family], str]:
    """All whose package can be imported; and, in words, what is left out."""
    from stabmon.bench.exact.families.own import OWN

    if find_spec("transformers") is None:
        return OWN, "transformers is not installed, so its models are left out: pip install 'stabmon[huggingface]'"
    _hide_a_torchvision_that_does_not_load()
    from stabmon.bench.exact.families.hf import HUGGINGFACE

    return [*OWN, *HUGGINGFACE], ""


def _hide_a_torchvision_that_does_not_load() -> None:
    """One that was built for another torch would keep transformers from being imported; none of the models needs it."""
    try:
        import_module("torchvision")
    except (ImportError, RuntimeError, OSError):
        sys.modules["torchvision"] = None  # type: ignore[assignment]  # Python's own way to say that there is none
