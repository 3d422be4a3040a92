"""The Trainer in two processes over gloo."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from torch.multiprocessing import get_context

from stabmon.huggingface import StabilityCallback
from tests.alerts_at import AlertsAt
from tests.huggingface.test_checkpoints import SAVING, names
from tests.test_huggingface import Keep, model, trainer

WORLD, DEADLINE, STEPS = 2, 180, 8


class Told(NamedTuple):
    """Of one rank: the steps at which the trainings ended, and of the last one stabmon's losses and the Trainer's."""

    ended: list[int]
    losses: list[float]
    logged: list[float]


def worker(rank: int, port: int, folder: Path, results: Any) -> None:
    os.environ.update(
        RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(WORLD), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port)
    )
    found, kept = [], Keep()
    for on_alert in ("stop", "checkpoint"):
        watcher = StabilityCallback(
            serve=False, folder=folder / "runs", detectors=[AlertsAt(5)], every=3, on_alert=on_alert, sinks=[kept]
        )
        given = {"max_steps": STEPS, "ddp_backend": "gloo", "logging_steps": 1, **SAVING}
        running = trainer(model(), folder / on_alert, watcher, **given)
        running.train()
        found.append(running.state.global_step)
    losses = [s.scalar("loss") for s in kept.snapshots[-STEPS:]]
    logged = [entry["loss"] for entry in running.state.log_history if "loss" in entry]
    results.put((rank, Told(found, losses, logged)))


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[int, Told]]:
    """The folder of both, and what each rank tells."""
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


def test_both_ranks_stop_after_the_same_step(ranks: tuple[Path, dict[int, Told]]) -> None:
    ended = {rank: told.ended[0] for rank, told in ranks[1].items()}
    assert ended == {0: 6, 1: 6}, "alert at 5, agreed at every 3rd step"


def test_a_checkpoint_on_an_alert_has_the_part_of_both(ranks: tuple[Path, dict[int, Told]]) -> None:
    folder, found = ranks
    assert {rank: told.ended[1] for rank, told in found.items()} == {0: STEPS, 1: STEPS}
    assert names(folder / "checkpoint") == {"checkpoint-8", "stabmon-alert-step-6", "stabmon-good-step-4"}
    for kept in ("stabmon-alert-step-6", "stabmon-good-step-4"):
        parts = {path.name for path in (folder / "checkpoint" / kept).glob("rng_state*")}
        assert parts == {"rng_state_0.pth", "rng_state_1.pth"}, kept


def test_the_loss_is_that_over_the_tokens_of_both(ranks: tuple[Path, dict[int, Told]]) -> None:
    first = ranks[1][0]
    assert len(first.losses) == STEPS
    assert first.losses == pytest.approx(first.logged, abs=1e-4), "each rank's model returns half of it"
