"""Processes over gloo on this machine, each of which runs the same function."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import distributed
from torch.multiprocessing.spawn import start_processes

_Result = TypeVar("_Result")


def on_ranks(world: int, folder: Path, do: Callable[[Path], _Result]) -> list[_Result]:
    """What `do(folder)` returned on each rank; it is pickled on its way there and back.

    Raises what torch raises when a process fails or is killed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    start_processes(partial(_run, world=world, folder=folder, do=do), nprocs=world, start_method="spawn")
    return [pickle.loads((folder / f"{rank}.pickle").read_bytes()) for rank in range(world)]


def _run(rank: int, world: int, folder: Path, do: Callable[[Path], Any]) -> None:
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", f"file://{folder}/meeting", rank=rank, world_size=world)
    try:
        (folder / f"{rank}.pickle").write_bytes(pickle.dumps(do(folder)))
        distributed.barrier()  # who leaves first would be missed by the others
    finally:
        distributed.destroy_process_group()
