"""The packed vector's way from the device to the host, never waited for."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

RING = 16
"""Rows that may be under way at once; a row that finds none free is dropped and counted."""


@dataclass
class Row:
    """One step's values on their way. `ticket` is whatever the sender wants back with them."""

    ticket: Any
    values: Tensor
    targets: Tensor | None
    event: torch.cuda.Event | None = field(default=None, repr=False)

    @property
    def here(self) -> bool:
        return self.event is None or bool(self.event.query())


class Pack:
    """Sends float32 vectors (and the step's targets) to the host; rows come back in order once they have arrived."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._under_way: list[Row] = []
        self.dropped = 0

    def ship(self, ticket: Any, values: Tensor, targets: Tensor | None = None) -> None:
        """Start the copy and return at once."""
        if self.device.type != "cuda":
            # On the CPU the vector is already here; elsewhere (MPS) there are no events to ask, and this waits.
            host = None if targets is None else targets.detach().to("cpu", copy=True)
            self._under_way.append(Row(ticket, values.to("cpu"), host))
            return
        if len(self._under_way) >= RING:
            self.dropped += 1
            return
        held, held_targets = _start_copy(values), None if targets is None else _start_copy(targets.detach())
        event = torch.cuda.Event()
        event.record()
        self._under_way.append(Row(ticket, held, held_targets, event))

    def arrived(self, wait: bool = False) -> list[tuple[Any, np.ndarray[Any, Any], np.ndarray[Any, Any] | None]]:
        """(ticket, values, targets) of every row that is here, in the order sent; `wait` only at the end of a run."""
        rows = []
        while self._under_way:
            row = self._under_way[0]
            if not row.here:
                if not wait or row.event is None:
                    break
                row.event.synchronize()
            self._under_way.pop(0)
            rows.append((row.ticket, row.values.numpy(), None if row.targets is None else row.targets.numpy()))
        return rows


def _start_copy(tensor: Tensor) -> Tensor:
    # torch keeps pinned memory in a pool of its own: after the first rows this allocates nothing.
    held = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
    held.copy_(tensor, non_blocking=True)
    return held
