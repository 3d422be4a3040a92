"""Loops that call the model inside `torch.func`, whose tensors are none that could be read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional as F

from stabmon import Monitor
from stabmon.records import PART_FAILED
from tests.loops.decoder import Decoder, batches, loss_of
from tests.trainings import Keep, watched


def of_each_row(model: nn.Module, inputs: Tensor, targets: Tensor) -> dict[str, Tensor]:
    """Gradients of every row of the batch by itself, as for differentially private training."""

    def loss(parameters: dict[str, Tensor], row: Tensor, wanted: Tensor) -> Tensor:
        return F.cross_entropy(functional_call(model, parameters, (row[None],))[0], wanted)

    held = {name: p.detach() for name, p in model.named_parameters()}
    each = vmap(grad(loss), in_dims=(None, 0, 0), randomness="different")
    found: dict[str, Tensor] = each(held, inputs, targets)
    return found


def trained(folder: Path, rows: bool, plain: bool = True) -> tuple[Keep, nn.Module]:
    """`rows`: with the gradients of each row beside the loop's own; `plain`: with a loop's own at all."""
    kept, model = Keep(), Decoder(dropout=0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    with Monitor(model, optimizer, level="deep", **watched(folder, kept)) as monitor:
        for inputs, targets in batches(4):
            found = of_each_row(model, inputs, targets) if rows else {}
            loss = loss_of(model, inputs, targets) if plain else torch.ones(())
            if plain:
                loss.backward()
            else:
                for name, p in model.named_parameters():
                    p.grad = found[name].mean(0)
            optimizer.step()
            optimizer.zero_grad()
            monitor.step(loss.detach(), targets=targets)
    return kept, model


def test_gradients_of_each_row_beside_the_loops_own_change_nothing_of_what_is_read(tmp_path: Path) -> None:
    (kept, model), (without, twin) = trained(tmp_path, rows=True), trained(tmp_path, rows=False)
    assert not [event for event in kept.events if event.kind == PART_FAILED]
    for name in ("norm_gain", "context_share", "total_grad_norm", "total_output_change_ratio"):
        np.testing.assert_array_equal(kept.snapshots[-1][name], without.snapshots[-1][name], name)
        assert np.isfinite(kept.snapshots[-1][name]).all(), name
    assert all(torch.equal(p, q) for p, q in zip(model.parameters(), twin.parameters(), strict=True))


def test_a_model_that_is_called_in_transforms_alone_is_said_to_be_unread(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    kept, _ = trained(tmp_path, rows=True, plain=False)
    assert not [event for event in kept.events if event.kind == PART_FAILED]
    assert "torch.func" in caplog.text
    assert np.isfinite(kept.snapshots[-1]["total_grad_norm"]).all()
