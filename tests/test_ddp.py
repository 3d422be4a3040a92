"""Two processes with DistributedDataParallel over gloo: both measure, rank 0 tells."""

from __future__ import annotations

import queue
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.multiprocessing import get_context
from torch.nn.parallel import DistributedDataParallel

from stabmon import Monitor
from tests.trainings import CLIP, STEPS, Batch, Keep, Network, adamw, loader, watched

WORLD, DEADLINE = 2, 120
JOBS = ((True, 0.0), (True, 0.1), (False, 0.1))
"""(watched, dropout) of each training."""


class Result(NamedTuple):
    parameters: list[NDArray[np.float32]]
    gradients: list[float]
    """Norms that stabmon read."""
    hooks: int
    state: str | None
    log: Path | None


def share(batch: Batch, rank: int) -> Batch:
    """That rank's rows of a batch."""
    return {name: rows[rank::WORLD] for name, rows in batch.items()}


def worker(rank: int, folder: Path, results: Any) -> None:
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", f"file://{folder}/meeting", rank=rank, world_size=WORLD)
    results.put((rank, [train(rank, folder, watch, dropout) for watch, dropout in JOBS]))
    torch.distributed.destroy_process_group()


def train(rank: int, folder: Path, watch: bool, dropout: float) -> Result:
    """One training of both ranks: what this one has to tell."""
    network, sink = Network(dropout), Keep()
    model = DistributedDataParallel(network)
    optimizer = adamw(network)
    torch.manual_seed(rank)
    monitor = Monitor(model, optimizer, **watched(folder, sink)) if watch else None
    hooks = sum(len(m._forward_pre_hooks) for m in network.modules())
    for batch in loader():
        loss = model(**share(batch, rank))["loss"]
        loss.backward()
        nn.utils.clip_grad_norm_(network.parameters(), CLIP)
        optimizer.step()
        optimizer.zero_grad()
        if monitor:
            monitor.step(loss)
    if monitor:
        monitor.close()
    gradients = [s.scalar("total_grad_norm") for s in sink.snapshots]
    parameters = [p.detach().numpy() for p in network.parameters()]
    return Result(parameters, gradients, hooks, sink.state, monitor.run_log if monitor else None)


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[list[Result]]:
    """Of each rank the result of each job; fails where the two do not end within the deadline."""
    context, folder = get_context("spawn"), tmp_path_factory.mktemp("ddp")
    results = context.Queue()
    processes = [context.Process(target=worker, args=(rank, folder, results)) for rank in range(WORLD)]
    for process in processes:
        process.start()
    try:
        found = [results.get(timeout=DEADLINE) for _ in processes]
    except queue.Empty:
        pytest.fail(f"no result of both ranks within {DEADLINE} s; exit codes {[p.exitcode for p in processes]}")
    finally:
        for process in processes:
            process.join(10)
            if process.is_alive():
                process.kill()
    return [result for _, result in sorted(found, key=lambda pair: pair[0])]


def single_process_gradient_norms() -> list[float]:
    """Of the mean loss over the whole batch, before clipping."""
    network = Network()
    optimizer = adamw(network)
    found: list[Tensor] = []
    for batch in loader():
        network(**batch)["loss"].backward()
        found.append(nn.utils.clip_grad_norm_(network.parameters(), CLIP))
        optimizer.step()
        optimizer.zero_grad()
    return [float(norm) for norm in found]


def test_rank_0_reads_the_gradient_of_the_union_batch_before_clipping(ranks: list[list[Result]]) -> None:
    watched_run = ranks[0][0]
    np.testing.assert_allclose(watched_run.gradients, single_process_gradient_norms(), rtol=1e-5)
    assert min(watched_run.gradients) > 5 * CLIP
    assert (len(watched_run.gradients), watched_run.state) == (STEPS, "finished")


def test_both_ranks_measure_and_rank_0_alone_tells(ranks: list[list[Result]]) -> None:
    first, second = ranks[0][0], ranks[1][0]
    assert first.hooks == second.hooks > 0
    assert (second.gradients, second.state, second.log) == ([], None, None)
    assert first.log is not None
    assert len(list(first.log.parent.glob("*.stabmon"))) == sum(watch for watch, _ in JOBS), "one log a watched run"


def test_both_ranks_train_bit_identically_with_and_without_stabmon_under_dropout(ranks: list[list[Result]]) -> None:
    ends = [rank[job].parameters for rank in ranks for job in (1, 2)]
    for end in ends[1:]:
        assert all(np.array_equal(a, b) for a, b in zip(end, ends[0], strict=True))
