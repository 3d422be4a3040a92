"""Taps read tensors during training. One file per thing read; torch lives here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from stabmon.records import Site


@dataclass(frozen=True, slots=True)
class Due:
    """What the coming step is to read; decided on the host before its forward."""

    layers: bool = False
    """Per-layer values."""
    probe: bool = False
    """Output change in total."""
    blocks: bool = False
    """Output change of each block by itself (implies probe)."""


class Tap(Protocol):
    """One thing read. Never waits for the device: no `.item()`, no `.cpu()`, no boolean on a tensor."""

    name: str

    def columns(self) -> Sequence[tuple[str, Site]]:
        """What `read` returns, in order. Fixed from the end of the first step on."""
        ...

    def arm(self, due: Due) -> None:
        """Prepare for the coming step."""
        ...

    def read(self) -> Tensor:
        """The finished step's values, float32[len(columns)], on the device; NaN = not read, Inf = not finite."""
        ...

    def weights(self) -> Tensor | float:
        """How much each value of `read` counts in a mean over ranks, float32[len(columns)]; a number: all alike."""
        ...

    def detach(self) -> None:
        """Remove every hook and forget every tensor."""
        ...
