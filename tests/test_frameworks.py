"""The same network, data and seed in every framework: the same numbers, and a training that is not changed."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from lightning.fabric import Fabric
from torch import Tensor
from torch.utils.data import DataLoader

from stabmon import Monitor
from stabmon.catalog import STATISTICS
from stabmon.detectors.spike import Spike
from stabmon.records import Layout, Snapshot
from tests.frameworks import LOOPS
from tests.trainings import BATCH, STEPS, Batch, Keep, Network, adamw, loader, watched

TIMES = {"step_seconds", "monitor_seconds"}


def train(framework: str, folder: Path, sink: Keep | None, dropout: float = 0.0) -> list[Tensor]:
    """The final parameters."""
    network = Network(dropout)
    torch.manual_seed(2)
    LOOPS[framework](network, folder, sink)
    return [p.detach() for p in network.parameters()]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[list[Snapshot], list[Tensor]]]:
    """Snapshots and final parameters of each framework's watched run; `pytest -s` shows the last step's statistics."""
    found = {}
    for framework in LOOPS:
        sink = Keep()
        parameters = train(framework, tmp_path_factory.mktemp(framework), sink)
        found[framework] = sink.snapshots, parameters
    sys.stdout.write(table({framework: snapshots[-1] for framework, (snapshots, _) in found.items()}))
    return found


def table(last: dict[str, Snapshot]) -> str:
    """Every statistic, the mean over its sites, by framework."""
    lines = [f"\n{f'step {STEPS}':30}" + "".join(f"{framework:>14}" for framework in last)]
    for name in (name for name in STATISTICS if next(iter(last.values()))[name].size):
        lines.append(f"{name:30}" + "".join(f"{np.mean(snapshot[name]):14.7g}" for snapshot in last.values()))
    return "\n".join([*lines, ""])


def columns(layout: Layout) -> list[tuple[str, str]]:
    """With the network's own names of its modules; in the LightningModule it is called `net`."""
    return [(statistic, site.removeprefix("net.")) for statistic, site in layout.columns]


@pytest.mark.parametrize("framework", LOOPS)
def test_all_statistics_of_five_steps_are_those_of_the_plain_loop_to_1e_6(
    runs: dict[str, tuple[list[Snapshot], list[Tensor]]], framework: str
) -> None:
    (plain, plain_parameters), (snapshots, parameters) = runs["plain"], runs[framework]
    assert [s.step for s in snapshots] == list(range(1, STEPS + 1))
    for mine, reference in zip(snapshots, plain, strict=True):
        assert columns(mine.layout) == columns(reference.layout)
        for name in STATISTICS.keys() - TIMES:
            np.testing.assert_allclose(mine[name], reference[name], rtol=1e-6, err_msg=f"{name}, step {mine.step}")
    unread = {name for name in STATISTICS if not np.isfinite(snapshots[0][name]).all()}
    assert unread == {"eval_loss", "class_mean_loss"}, "of inputs that are no tokens"
    assert all(torch.equal(a, b) for a, b in zip(parameters, plain_parameters, strict=True))


@pytest.mark.parametrize("framework", LOOPS)
def test_training_is_bit_identical_with_dropout(tmp_path: Path, framework: str) -> None:
    watched = train(framework, tmp_path, Keep(), dropout=0.1)
    alone = train(framework, tmp_path, None, dropout=0.1)
    assert all(torch.equal(a, b) for a, b in zip(watched, alone, strict=True))


@pytest.mark.parametrize("framework", ["huggingface", "lightning"])
def test_a_callback_refuses_one_detector_where_a_list_is_meant(framework: str) -> None:
    with pytest.raises(ValueError, match="detectors=Spike: must be a list of detectors; to keep the default ones"):
        import_module(f"stabmon.{framework}").StabilityCallback(detectors=Spike())


@pytest.mark.parametrize("framework", ["accelerate", "fabric"])
def test_accumulated_batches_are_one_step_with_the_gradient_of_all(tmp_path: Path, framework: str) -> None:
    kept, network, count = Keep(), Network(), 2 * STEPS * BATCH
    accumulate = {"accelerate": accumulate_in_accelerate, "fabric": accumulate_in_fabric}[framework]
    accumulate(network, loader(count=count), watched(tmp_path, kept))
    plain, norms = Network(), []
    optimizer = adamw(plain)
    for batch in loader(2 * BATCH, count):
        plain(**batch)["loss"].backward()
        norms.append(float(torch.nn.utils.clip_grad_norm_(plain.parameters(), torch.inf)))
        optimizer.step()
        optimizer.zero_grad()
    assert [s.scalar("total_grad_norm") for s in kept.snapshots] == pytest.approx(norms, rel=1e-5)
    assert [s.scalar("skipped_steps") for s in kept.snapshots] == [0.0] * STEPS


def accumulate_in_accelerate(network: Network, data: DataLoader[Batch], settings: dict[str, Any]) -> None:
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    model, optimizer, batches = accelerator.prepare(network, adamw(network), data)
    with Monitor(model, optimizer, **settings) as monitor:
        for batch in batches:
            with accelerator.accumulate(model):
                loss = model(**batch)["loss"]
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
            if accelerator.sync_gradients:
                monitor.step(loss)


def accumulate_in_fabric(network: Network, data: DataLoader[Batch], settings: dict[str, Any]) -> None:
    fabric = Fabric(accelerator="cpu", devices=1)
    model, optimizer = fabric.setup(network, adamw(network))
    with Monitor(model, optimizer, **settings) as monitor:
        for number, batch in enumerate(fabric.setup_dataloaders(data), 1):
            with fabric.no_backward_sync(model, enabled=number % 2 == 1):
                loss = model(**batch)["loss"]
                fabric.backward(loss / 2)
            if number % 2 == 0:
                optimizer.step()
                optimizer.zero_grad()
                monitor.step(loss)
