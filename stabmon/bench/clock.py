"""The clock that steps are measured on."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch


def now(device: torch.device) -> float:
    """Seconds, once the device has nothing left to do.

    On the CPU these are seconds of CPU time of this process, which other programs on the machine do not lengthen;
    with one thread it is the step time of a machine that does nothing else.
    """
    if device.type == "cpu":
        return time.process_time()
    torch.accelerator.synchronize(device)
    return time.perf_counter()


@contextmanager
def one_thread(device: torch.device) -> Iterator[None]:
    """On the CPU: compute in one thread while it is open."""
    before = torch.get_num_threads()
    if device.type == "cpu":
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
