from __future__ import annotations

import queue
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.multiprocessing import get_context
from torch.nn.parallel import DistributedDataParallel

from stabmon import Monitor
from stabmon.records import Alert, Severity
from tests.alerts_at import AlertsAt
from tests.trainings import BATCH, Keep, Network, adamw, loader, watched

STEPS, WORLD, DEADLINE = 8, 2, 120


def train(monitor: Monitor, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> int:
    """Steps that were taken until the monitor asked to stop."""
    for step, batch in enumerate(loader(BATCH, BATCH * STEPS), 1):
        loss = model(**batch)["loss"]
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        monitor.step(loss)
        if monitor.should_stop:
            return step
    return STEPS


def run(folder: Path, detector: AlertsAt, **settings: Any) -> int:
    network = Network()
    optimizer = adamw(network)
    with Monitor(network, optimizer, **watched(folder, Keep()), detectors=[detector], **settings) as monitor:
        return train(monitor, network, optimizer)


@pytest.mark.parametrize(("severity", "steps"), [("critical", 3), ("warning", STEPS), ("info", STEPS)])
def test_stop_ends_the_loop_at_the_step_of_a_critical_alert_alone(
    tmp_path: Path, severity: Severity, steps: int
) -> None:
    assert run(tmp_path, AlertsAt(3, severity), on_alert="stop") == steps


def test_by_default_nothing_is_done(tmp_path: Path) -> None:
    assert run(tmp_path, AlertsAt(3)) == STEPS


def test_a_function_gets_every_alert_in_the_training_thread_and_once(tmp_path: Path) -> None:
    got: list[tuple[int, str]] = []
    assert (
        run(tmp_path, AlertsAt(3, "warning"), on_alert=lambda alert: got.append((alert.step, alert.severity))) == STEPS
    )
    assert got == [(3, "warning")]


def test_a_function_that_raises_is_dropped_and_told_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert run(tmp_path, AlertsAt(3), on_alert=lambda alert: 1 / 0) == STEPS
    assert [r.message for r in caplog.records if "on_alert" in r.message] == [
        "stabmon: on_alert failed at step 3 and is dropped; training goes on"
    ]


def test_what_was_known_before_a_resume_is_not_acted_on_again(tmp_path: Path) -> None:
    got: list[int] = []
    for start in (0, 8):
        run(tmp_path, AlertsAt(3), on_alert=lambda alert: got.append(alert.step), start_step=start)
    assert got == [3]


def test_a_plain_loop_has_no_checkpoint_to_write(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="on_alert='checkpoint': a plain loop's .* pass a function of the alert"):
        run(tmp_path, AlertsAt(3), on_alert="checkpoint")


@pytest.mark.parametrize("wrong", ["halt", 3, None, AlertsAt])
def test_what_is_no_reaction_is_refused(tmp_path: Path, wrong: Any) -> None:
    with pytest.raises(ValueError, match="on_alert=.* is not allowed: it takes 'log', 'checkpoint', 'stop', or"):
        run(tmp_path, AlertsAt(3), on_alert=wrong)


def worker(rank: int, folder: Path, results: Any) -> None:
    """Three trainings of both ranks: without and with DistributedDataParallel, and one whose session fails."""
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", f"file://{folder}/meeting", rank=rank, world_size=WORLD)
    found: list[Any] = [stopped_at(folder, parallel) for parallel in (False, True)]
    found.append(told_after(folder, failing=False))
    found.append(told_after(folder, failing=True))
    results.put((rank, found))
    torch.distributed.destroy_process_group()


def stopped_at(folder: Path, parallel: bool) -> int:
    network = Network()
    model = DistributedDataParallel(network) if parallel else network
    optimizer = adamw(network)
    settings = {**watched(folder, Keep()), "detectors": [AlertsAt(3)], "every": 2, "on_alert": "stop"}
    with Monitor(model, optimizer, **settings) as monitor:
        return train(monitor, model, optimizer)


def told_after(folder: Path, failing: bool) -> list[tuple[int, int]]:
    """(step, the alert's step) of each call, on this rank; with a session that fails after the alert, on rank 0."""
    network, told = Network(), []
    optimizer = adamw(network)

    def act(alert: Alert) -> None:
        told.append((step, alert.step))

    settings = {**watched(folder, Keep()), "detectors": [AlertsAt(3)], "every": 2, "on_alert": act}
    with Monitor(network, optimizer, **settings) as monitor:
        for step in range(1, STEPS + 1):
            if failing and step == 4 and monitor._session is not None:
                monitor._session.take = None  # type: ignore[method-assign, assignment]
            network(**next(iter(loader())))["loss"].backward()
            optimizer.step()
            monitor.step()
    return told


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[list[Any]]:
    """What each rank found; fails where the two do not end within the deadline."""
    context, folder = get_context("spawn"), tmp_path_factory.mktemp("reaction")
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


def test_two_ranks_stop_after_the_same_step(ranks: list[list[Any]]) -> None:
    assert [rank[:2] for rank in ranks] == [[4, 4], [4, 4]], "alert at 3, agreed at every 2nd step; plain and DDP"


def test_a_function_is_called_on_every_rank_after_the_same_step(ranks: list[list[Any]]) -> None:
    assert [rank[2] for rank in ranks] == [[(4, 3)], [(4, 3)]]


def test_a_session_that_fails_on_rank_0_keeps_no_rank_waiting(ranks: list[list[Any]]) -> None:
    assert [rank[3] for rank in ranks] == [[(4, 3)], [(4, 3)]]
