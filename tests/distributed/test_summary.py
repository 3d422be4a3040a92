"""Two ranks: each serves its own summary under the run's one name, rank 0 alone the layers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import torch
from torch import distributed, nn
from torch.multiprocessing import get_context
from torch.nn.parallel import DistributedDataParallel

from stabmon import Monitor

DEADLINE = 120


def worker(rank: int, folder: Path, results: Any) -> None:
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", f"file://{folder}/meeting", rank=rank, world_size=2)
    network = DistributedDataParallel(nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4)))
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    with Monitor(network, optimizer, folder=folder / "runs", port=0, log_to="none", linger_seconds=0) as monitor:
        for _ in range(3):
            loss = network(torch.randn(2, 4)).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            monitor.step(loss)
        distributed.barrier()
        if rank == 0:
            results.put(scraped(folder / "runs"))
        distributed.barrier()
    distributed.destroy_process_group()


def scraped(runs: Path) -> list[str]:
    """The text of each rank, found as Prometheus' file_sd would."""
    found = []
    for path in sorted(runs.glob("*.target.json")):
        (target,) = json.loads(path.read_text(encoding="utf-8"))
        with urlopen(f"http://{target['targets'][0]}/metrics") as answer:
            found.append(answer.read().decode())
    return found


def test_each_rank_is_found_and_served_under_one_name(tmp_path: Path) -> None:
    context = get_context("spawn")
    results = context.Queue()
    processes = [context.Process(target=worker, args=(rank, tmp_path, results)) for rank in range(2)]
    for process in processes:
        process.start()
    try:
        texts = results.get(timeout=DEADLINE)
    finally:
        for process in processes:
            process.join(30)
            if process.is_alive():
                process.kill()
    (log,) = (tmp_path / "runs").glob("*.stabmon")
    assert len(texts) == 2
    for rank, text in enumerate(texts):
        assert f'stabmon_steps_total{{rank="{rank}",run="{log.stem}"}} 3.0' in text
        assert f'rank="{rank}",run="{log.stem}",version=' in text
        assert 'world_size="2"' in text
        assert (f'stabmon_world_size{{rank="0",run="{log.stem}"}} 2.0\n' in text) == (rank == 0)
        assert ("layer=" in text) == (rank == 0)
    assert [p for p in (tmp_path / "runs").iterdir() if p.suffix == ".json"] == []
