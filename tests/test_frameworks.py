"""The same network, data and seed in every framework: the same numbers, and a training that is not changed."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from stabmon.catalog import STATISTICS
from stabmon.records import Layout, Snapshot
from tests.frameworks import LOOPS
from tests.trainings import STEPS, Keep, Network

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
    for name in STATISTICS:
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
    assert unread == {"eval_loss"}
    assert all(torch.equal(a, b) for a, b in zip(parameters, plain_parameters, strict=True))


@pytest.mark.parametrize("framework", LOOPS)
def test_training_is_bit_identical_with_dropout(tmp_path: Path, framework: str) -> None:
    watched = train(framework, tmp_path, Keep(), dropout=0.1)
    alone = train(framework, tmp_path, None, dropout=0.1)
    assert all(torch.equal(a, b) for a, b in zip(watched, alone, strict=True))
