"""The Trainer in two processes over gloo."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

import pytest
from torch.multiprocessing import get_context

from stabmon.huggingface import StabilityCallback
from tests.alerts_at import AlertsAt
from tests.huggingface.test_checkpoints import SAVING, names
from tests.test_huggingface import model, trainer

WORLD, DEADLINE, STEPS = 2, 180, 8


def worker(rank: int, port: int, folder: Path, results: Any) -> None:
    os.environ.update(
        RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(WORLD), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port)
    )
    found = []
    for on_alert in ("stop", "checkpoint"):
        watcher = StabilityCallback(
            serve=False, folder=folder / "runs", detectors=[AlertsAt(5)], every=3, on_alert=on_alert
        )
        running = trainer(model(), folder / on_alert, watcher, max_steps=STEPS, ddp_backend="gloo", **SAVING)
        running.train()
        found.append(running.state.global_step)
    results.put((rank, found))


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[int, list[int]]]:
    """The folder of both, and of each rank the step at which either training ended."""
    context, folder = get_context("spawn"), tmp_path_factory.mktemp("two")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    results = context.Queue()
    processes = [context.Process(target=worker, args=(rank, port, folder, results)) for rank in range(WORLD)]
    for process in processes:
        process.start()
    try:
        found = dict(results.get(timeout=DEADLINE) for _ in processes)
    finally:
        for process in processes:
            process.join(10)
            if process.is_alive():
                process.kill()
    return folder, found


def test_both_ranks_stop_after_the_same_step(ranks: tuple[Path, dict[int, list[int]]]) -> None:
    assert {rank: steps[0] for rank, steps in ranks[1].items()} == {0: 6, 1: 6}, "alert at 5, agreed at every 3rd step"


def test_a_checkpoint_on_an_alert_has_the_part_of_both(ranks: tuple[Path, dict[int, list[int]]]) -> None:
    folder, found = ranks
    assert {rank: steps[1] for rank, steps in found.items()} == {0: STEPS, 1: STEPS}
    assert names(folder / "checkpoint") == {"checkpoint-8", "stabmon-alert-step-6", "stabmon-good-step-4"}
    for kept in ("stabmon-alert-step-6", "stabmon-good-step-4"):
        parts = {path.name for path in (folder / "checkpoint" / kept).glob("rng_state*")}
        assert parts == {"rng_state_0.pth", "rng_state_1.pth"}, kept
