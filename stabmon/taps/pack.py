"""The packed vector's way from the device to the host, never waited for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

Host = np.ndarray[Any, Any]
RING = 16
"""Rows that may be under way at once; a row that finds none free is dropped and counted."""


@dataclass
class Row:
    """One step's values on their way. `ticket` is whatever the sender wants back with them."""

    ticket: Any
    values: Tensor
    targets: Sequence[Tensor]
    event: torch.cuda.Event | None = field(default=None, repr=False)

    @property
    def here(self) -> bool:
        return self.event is None or bool(self.event.query())


class Pack:
    """Sends float32 vectors, and what baselines need of the step, to the host; rows come back in order once there."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._under_way: list[Row] = []
        self.dropped = 0

    def ship(self, ticket: Any, values: Tensor, targets: Sequence[Tensor] = ()) -> None:
        """Start the copy and return at once."""
        if self.device.type != "cuda":
            # On the CPU the vector is already here; elsewhere (MPS) there are no events to ask, and this waits.
            host = [tensor.detach().to("cpu", copy=True) for tensor in targets]
            self._under_way.append(Row(ticket, values.to("cpu"), host))
            return
        if len(self._under_way) >= RING:
            self.dropped += 1
            return
        held, held_targets = _start_copy(values), [_start_copy(self._here(tensor.detach())) for tensor in targets]
        event = torch.cuda.Event()
        event.record()
        self._under_way.append(Row(ticket, held, held_targets, event))

    def arrived(self, wait: bool = False) -> list[tuple[Any, Host, list[Host]]]:
        """(ticket, values, targets) of every row that is here, in the order sent; `wait` only at the end of a run."""
        rows = []
        while self._under_way:
            row = self._under_way[0]
            if not row.here:
                if not wait or row.event is None:
                    break
                row.event.synchronize()
            self._under_way.pop(0)
            rows.append((row.ticket, row.values.numpy(), [tensor.numpy() for tensor in row.targets]))
        return rows

    def _here(self, tensor: Tensor) -> Tensor:
        """On the device whose event is asked whether all has arrived, if it is on one at all."""
        return tensor if tensor.device.type == "cpu" else tensor.to(self.device, non_blocking=True)


def _start_copy(tensor: Tensor) -> Tensor:
    # torch keeps pinned memory in a pool of its own: after the first rows this allocates nothing.
    held = torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu", pin_memory=True)
    held.copy_(tensor, non_blocking=True)
    return held
