"""The clock that steps are measured on."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from stabmon.taps.hooks import spent


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
    """On the CPU: compute in one thread while it is open, and let stabmon's stopwatch go by the same clock."""
    threads, clock = torch.get_num_threads(), spent.clock
    if device.type == "cpu":
        torch.set_num_threads(1)
        spent.clock = time.process_time
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        spent.clock = clock
