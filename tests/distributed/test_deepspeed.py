"""DeepSpeed is not installed here: stand-ins of the same names and shapes, written from its source."""

from __future__ import annotations

import logging
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from stabmon import Monitor
from tests.trainings import Keep, Network, loader, watched


class DeepSpeedEngine(nn.Module):
    """Wraps the network as `module`."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.module = network

    def forward(self, **batch: Tensor) -> Any:
        return self.module(**batch)


class DeepSpeedZeroOptimizer:
    """No torch Optimizer; the one inside holds a flat copy of the parameters."""

    def __init__(self, network: nn.Module) -> None:
        self._parameters = list(network.parameters())
        self._flat = nn.Parameter(torch.cat([p.detach().reshape(-1) for p in self._parameters]))
        self.optimizer = torch.optim.AdamW([self._flat], lr=1e-2)

    def step(self) -> None:
        self._flat.grad = torch.cat([torch.zeros_like(p).reshape(-1) for p in self._parameters])
        self.optimizer.step()
        for p in self._parameters:
            p.grad = None


def test_norms_loss_and_learning_rate_are_read_and_gradients_and_updates_are_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    engine, sink = DeepSpeedEngine(Network()), Keep()
    optimizer: Any = DeepSpeedZeroOptimizer(engine.module)
    with caplog.at_level(logging.WARNING), Monitor(engine, optimizer, **watched(tmp_path, sink)) as monitor:
        for batch in loader():
            loss = engine(**batch)["loss"]
            loss.backward()
            optimizer.step()
            monitor.step(loss)
    for snapshot in sink.snapshots:
        assert not any(math.isnan(value) for value in (*snapshot["norm_gain"], snapshot.scalar("context_share")))
        assert snapshot.scalar("learning_rate") == pytest.approx(1e-2)
        for statistic in ("grad_sq", "weight_sq", "update_sq", "total_grad_sq", "output_msq"):
            assert all(math.isnan(value) for value in snapshot[statistic]), statistic
    (said,) = [r.getMessage() for r in caplog.records if "DeepSpeed" in r.getMessage()]
    assert said.startswith("stabmon: DeepSpeed keeps gradients and updates to itself, so gradients, updates and")


@pytest.mark.parametrize("mark", ["ds_id", "_hp_mapping"])
def test_the_network_inside_an_engine_is_known_by_its_parameters(
    mark: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    network = Network()
    for p in network.parameters():
        setattr(p, mark, object())
    optimizer: Any = DeepSpeedZeroOptimizer(network)
    with caplog.at_level(logging.WARNING), Monitor(network, optimizer, **watched(tmp_path, Keep())):
        pass
    assert any("DeepSpeed keeps gradients" in record.getMessage() for record in caplog.records)
