"""Networks of batch norms, and of no norms at all, under a Monitor."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from stabmon import Monitor
from stabmon.records import Snapshot


class Residual(nn.Module):
    def __init__(self, normed: bool) -> None:
        super().__init__()
        self.conv = nn.Conv2d(8, 8, 3, padding=1)
        self.bn = nn.BatchNorm2d(8) if normed else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return x + F.relu(self.bn(self.conv(x)))


def network(normed: bool) -> nn.Module:
    torch.manual_seed(0)
    blocks = nn.Sequential(*(Residual(normed) for _ in range(3)))
    return nn.Sequential(nn.Conv2d(3, 8, 3), blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5))


def last_snapshot(model: nn.Module, folder: Path) -> Snapshot:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with Monitor(model, optimizer, folder=folder, serve=False) as monitor:
        for _ in range(3):
            loss = F.cross_entropy(model(torch.randn(16, 3, 8, 8)), torch.randint(5, (16,)))
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            monitor.step(loss)
        snapshot = monitor.latest
    assert snapshot is not None
    return snapshot


def test_a_network_of_batch_norms_is_watched(tmp_path: Path) -> None:
    snapshot = last_snapshot(network(normed=True), tmp_path)
    assert [site.name for site in snapshot.layout.sites_of("norm_gain")] == ["1.0.bn", "1.1.bn", "1.2.bn"]
    for name in ("norm_input_msq", "norm_input_var", "norm_gain", "grad_norm", "total_output_change_ratio"):
        assert np.isfinite(snapshot[name]).all(), name
    assert np.isnan(snapshot["token_similarity"]).all()
    assert np.isnan(snapshot.scalar("context_share"))


def test_a_network_without_norms_has_the_other_signals_and_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "stabmon"):
        snapshot = last_snapshot(network(normed=False), tmp_path)
    (warning,) = [r.getMessage() for r in caplog.records if "no norm layer" in r.getMessage()]
    assert "Sequential has no norm layer, so norm inputs, gain, context share and similarity are not read" in warning
    blocks = [site.name for site in snapshot.layout.sites_of("grad_norm")]
    assert blocks[1:4] == ["1.0", "1.1", "1.2"]
    for name in ("grad_norm", "update_ratio", "total_output_change_ratio"):
        assert np.isfinite(snapshot[name]).all(), name
    assert snapshot["norm_gain"].size == 0
