"""Updates of half-precision weights against twins in float32 that are given the same gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from stabmon.records import Layout, Site, Snapshot
from stabmon.taps import Due
from stabmon.taps.groups import Groups
from stabmon.taps.optimizer.updates import Updates

WIDTH = 64


def attach(model: nn.Module, *optimizers: torch.optim.Optimizer) -> Updates:
    parameters = dict(model.named_parameters())
    return Updates(Groups(parameters, {Site("m", 0, "block"): list(parameters)}), optimizers)


def snapshot(tap: Updates) -> Snapshot:
    sites = (Site("m", 0, "block"),)
    layout = Layout(tuple((name, site.name) for name, site in tap.columns()), sites)
    return Snapshot(1, 0.0, tap.read().numpy(), layout)


def twins(dtype: torch.dtype) -> tuple[nn.Linear, nn.Linear]:
    """The same weights in half and in float32."""
    torch.manual_seed(0)
    half, full = nn.Linear(WIDTH, WIDTH).to(dtype), nn.Linear(WIDTH, WIDTH)
    full.load_state_dict(half.state_dict())
    return half, full


def same_gradients(step: int, half: nn.Linear, full: nn.Linear) -> None:
    generator = torch.Generator().manual_seed(step)
    for p, q in zip(half.parameters(), full.parameters(), strict=True):
        p.grad = (torch.randn(p.shape, generator=generator) * 1e-2).to(p.dtype)
        q.grad = p.grad.float()


KINDS: dict[str, tuple[type[torch.optim.Optimizer], dict[str, Any]]] = {
    "adamw": (torch.optim.AdamW, {"weight_decay": 0.1}),
    "foreach": (torch.optim.AdamW, {"foreach": True}),
    "fused": (torch.optim.AdamW, {"fused": True}),
    "adam_l2": (torch.optim.Adam, {"weight_decay": 1e-2}),
    "amsgrad": (torch.optim.AdamW, {"amsgrad": True}),
}


@pytest.mark.parametrize("rate", [1e-3, 1e-5])
@pytest.mark.parametrize("kind", KINDS)
def test_the_intended_update_is_that_of_the_float32_twin_within_1_percent(kind: str, rate: float) -> None:
    half, full = twins(torch.bfloat16)
    make, arguments = KINDS[kind]
    optimizers = [make(m.parameters(), lr=rate, **arguments) for m in (half, full)]
    tap = attach(half, optimizers[0])
    for step in range(10):
        tap.arm(Due(layers=True))
        same_gradients(step, half, full)
        before = [q.detach().clone() for q in full.parameters()]
        for optimizer in optimizers:
            optimizer.step()
        moved = torch.cat([(q - b).flatten() for q, b in zip(full.parameters(), before, strict=True)]).detach()
        found = snapshot(tap)
        assert found["intended_update_norm"][0] == pytest.approx(float(moved.norm()), rel=1e-2)
        assert found["update_ratio"][0] == pytest.approx(found["intended_update_norm"][0] / found["weight_norm"][0])


def test_what_rounding_ate_is_told_where_the_weights_hardly_move() -> None:
    half, full = twins(torch.bfloat16)
    optimizer = torch.optim.AdamW(half.parameters(), lr=1e-5)
    tap = attach(half, optimizer)
    tap.arm(Due(layers=True))
    same_gradients(0, half, full)
    before = [p.detach().double() for p in half.parameters()]
    optimizer.step()
    moved = torch.cat([(p.detach().double() - b).flatten() for p, b in zip(half.parameters(), before, strict=True)])
    # In its first step Adam's direction is the sign of the gradient.
    rows = zip(half.parameters(), before, strict=True)
    meant = torch.cat([(-1e-5 * (p.grad.double().sign() + 0.01 * b)).flatten() for p, b in rows if p.grad is not None])
    found = snapshot(tap)
    assert found["update_norm"][0] == pytest.approx(float(moved.norm()), rel=1e-5)
    assert found["lost_update_ratio"][0] == pytest.approx(float((moved - meant).norm() / meant.norm()), rel=1e-4)
    assert found["lost_update_ratio"][0] > 0.9, "a rate that is useless in bfloat16"
    assert found["intended_update_norm"][0] == pytest.approx(float(meant.norm()), rel=1e-4)


def test_float16_weights_with_larger_steps_lose_little() -> None:
    half, full = twins(torch.float16)
    optimizer = torch.optim.AdamW(half.parameters(), lr=1e-2, eps=1e-4)
    tap = attach(half, optimizer)
    tap.arm(Due(layers=True))
    same_gradients(0, half, full)
    optimizer.step()
    assert 0 < snapshot(tap)["lost_update_ratio"][0] < 1e-2


def test_float32_weights_move_as_was_intended_and_nothing_is_lost() -> None:
    _, full = twins(torch.bfloat16)
    optimizer = torch.optim.AdamW(full.parameters(), lr=1e-3)
    tap = attach(full, optimizer)
    tap.arm(Due(layers=True))
    same_gradients(0, full, full)
    optimizer.step()
    found = snapshot(tap)
    assert found["intended_update_norm"][0] == found["update_norm"][0] > 0
    assert found["lost_update_ratio"].size == 0


def test_of_an_optimizer_without_moments_the_intended_update_is_what_moved() -> None:
    half, full = twins(torch.bfloat16)
    optimizer = torch.optim.SGD(half.parameters(), lr=1.0)
    tap = attach(half, optimizer)
    tap.arm(Due(layers=True))
    same_gradients(0, half, full)
    optimizer.step()
    found = snapshot(tap)
    assert found["intended_update_norm"][0] == found["update_norm"][0] > 0
    assert np.isnan(found["lost_update_ratio"][0])


def test_a_block_of_mixed_precision_adds_both_kinds() -> None:
    half, full = twins(torch.bfloat16)
    model = nn.ModuleList([half, nn.LayerNorm(WIDTH)])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0)
    tap = attach(model, optimizer)
    tap.arm(Due(layers=True))
    same_gradients(0, half, full)
    for p in model[1].parameters():
        p.grad = torch.ones_like(p)
    optimizer.step()
    expected = 1e-4 * (sum(p.numel() for p in model.parameters())) ** 0.5
    assert snapshot(tap)["intended_update_norm"][0] == pytest.approx(expected, rel=1e-3)


def test_two_optimizers_add_up_and_one_that_calls_itself_counts_once() -> None:
    class Twice(torch.optim.AdamW):
        def step(self, closure: Any = None) -> Any:
            return super().step(closure)

    half, full = twins(torch.bfloat16)
    optimizers = [Twice([p], lr=1e-4, weight_decay=0) for p in half.parameters()]
    tap = attach(half, *optimizers)
    tap.arm(Due(layers=True))
    same_gradients(0, half, full)
    for optimizer in optimizers:
        optimizer.step()
    expected = 1e-4 * sum(p.numel() for p in half.parameters()) ** 0.5
    assert snapshot(tap)["intended_update_norm"][0] == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize("ratio", [1e-5, 6e-7, 1e-8])
def test_the_norm_of_a_float32_update_is_as_exact_as_is_said(ratio: float) -> None:
    torch.manual_seed(0)
    model = nn.Linear(256, 256, bias=False)
    nn.init.normal_(model.weight)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    tap = attach(model, optimizer)
    tap.arm(Due(layers=True))
    model.weight.grad = torch.randn(256, 256).sign() * ratio
    optimizer.step()
    found = snapshot(tap)
    assert abs(found["update_norm"][0] - 256 * ratio) <= 2**-24 * found["weight_norm"][0]
