"""The optimizer's state against Adam written out in float64."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from stabmon.settings import Settings
from stabmon.taps import Due
from stabmon.taps.optimizer.state import NEAR_EPSILON, OptimizerState
from stabmon.taps.parts import Parts, examine

STEPS = 4
EPS = 1e-3
"""Large enough that some coordinates lie near it."""


class Net(nn.Module):
    """Two blocks, and a head outside them."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.LayerNorm(16), nn.Linear(16, 16)) for _ in range(2))
        self.head = nn.Linear(16, 4)

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = x + block(x)
        return self.head(x)


def examined(model: nn.Module, *optimizers: torch.optim.Optimizer) -> Parts:
    return examine(model, optimizers, Settings(level="standard"))


def read(tap: OptimizerState) -> dict[tuple[str, str], float]:
    return {(name, site.name): float(v) for (name, site), v in zip(tap.columns(), tap.read(), strict=True)}


def backward(model: nn.Module, step: int, scale: float = 1e-2) -> None:
    model.zero_grad()
    x = torch.randn(8, 16, generator=torch.Generator().manual_seed(step))
    (model(x).square().mean() * scale * (1 + step)).backward()


class Naive:
    """Adam of one parameter, in float64."""

    def __init__(self, p: Tensor, betas: tuple[float, float], amsgrad: bool, penalty: float, maximize: bool) -> None:
        self.m = self.v = self.most = torch.zeros_like(p, dtype=torch.float64)
        self.betas, self.amsgrad, self.penalty, self.sign = betas, amsgrad, penalty, -1 if maximize else 1

    def step(self, t: int, gradient: Tensor, weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """g^2/max(v_hat, eps^2), the squared direction, and what is near epsilon."""
        g = self.sign * gradient.double() + self.penalty * weight.double()
        self.m = self.betas[0] * self.m + (1 - self.betas[0]) * g
        self.v = self.betas[1] * self.v + (1 - self.betas[1]) * g**2
        self.most = torch.maximum(self.most, self.v)
        v_hat = (self.most if self.amsgrad else self.v) / (1 - self.betas[1] ** t)
        direction = self.m / (1 - self.betas[0] ** t) / (v_hat.sqrt() + EPS)
        return g**2 / v_hat.clamp(min=EPS**2), direction**2, (v_hat.sqrt() < NEAR_EPSILON * EPS).double()


KINDS: dict[str, tuple[type[torch.optim.Optimizer], dict[str, Any]]] = {
    "for_loop": (torch.optim.AdamW, {"foreach": False}),
    "foreach": (torch.optim.AdamW, {"foreach": True, "weight_decay": 0.1}),
    "fused": (torch.optim.AdamW, {"fused": True}),
    "amsgrad": (torch.optim.Adam, {"amsgrad": True}),
    "l2": (torch.optim.Adam, {"weight_decay": 0.1}),
    "maximize": (torch.optim.Adam, {"weight_decay": 0.1, "maximize": True}),
    "tensor_rate": (torch.optim.Adam, {"lr": torch.tensor(1e-2), "weight_decay": 0.1}),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_adam_of_torch_reads_as_written_out_in_float64(kind: str) -> None:
    torch.manual_seed(0)
    model = Net()
    make, arguments = KINDS[kind]
    optimizer = make(model.parameters(), **{"lr": 1e-2, "eps": EPS, "betas": (0.8, 0.95), **arguments})
    tap = OptimizerState(examined(model, optimizer))
    penalty = 0.0 if make is torch.optim.AdamW else arguments.get("weight_decay", 0.0)
    naive = {
        name: Naive(p, (0.8, 0.95), bool(arguments.get("amsgrad")), penalty, bool(arguments.get("maximize")))
        for name, p in model.named_parameters()
    }
    for step in range(1, STEPS + 1):
        tap.arm(Due(layers=True))
        backward(model, step)
        expected = {
            name: naive[name].step(step, p.grad, p.detach())
            for name, p in model.named_parameters()
            if p.grad is not None
        }
        optimizer.step()
        found = read(tap)
    for site in ("blocks.0", "blocks.1", "head"):
        rows = [torch.stack(row) for name, row in expected.items() if name.startswith(site)]
        columns = torch.cat([row.flatten(1) for row in rows], dim=1).mean(1)
        got = [found[name, site] for name in ("rms_t_msq", "adam_update_msq", "epsilon_share")]
        torch.testing.assert_close(torch.tensor(got, dtype=torch.float64), columns, rtol=1e-5, atol=1e-7)
    shares = [value for (name, _), value in found.items() if name == "epsilon_share"]
    assert any(0 < share < 1 for share in shares), "the test's epsilon parts the coordinates"


def test_eight_bit_states_read_within_the_error_of_their_8_bits() -> None:
    bitsandbytes = pytest.importorskip("bitsandbytes")
    torch.manual_seed(0)
    models = [nn.Sequential(nn.LayerNorm(128), nn.Linear(128, 128)) for _ in range(2)]
    models[1].load_state_dict(models[0].state_dict())
    x = torch.randn(8, 128)
    found = []
    for model, make in zip(models, (bitsandbytes.optim.AdamW8bit, torch.optim.AdamW), strict=True):
        optimizer = make(model.parameters(), lr=1e-3)
        tap = OptimizerState(examined(model, optimizer))
        for _ in range(3):
            tap.arm(Due(layers=True))
            model.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
        found.append(read(tap))
    for name in ("rms_t_msq", "adam_update_msq"):
        assert found[0][name, "1"] == pytest.approx(found[1][name, "1"], rel=0.1)
        assert found[0][name, "0"] == pytest.approx(found[1][name, "0"], rel=1e-2)  # too small to be packed


def test_a_second_moment_that_lags_shows_as_rms_t_above_its_line() -> None:
    model = Net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.0, betas=(0.9, 0.999))
    tap = OptimizerState(examined(model, optimizer))
    values = []
    for scale in [1e-3] * 20 + [1e-2]:
        tap.arm(Due(layers=True))
        backward(model, 1, scale)
        optimizer.step()
        values.append(read(tap)["rms_t_msq", "blocks.0"] ** 0.5)
    assert values[19] == pytest.approx(1, abs=1e-2)
    # v_hat holds 20 old squares and one that is 100 times as large: 10 / sqrt((20 + 100) / 21).
    assert values[20] == pytest.approx(10 / (120 / 21) ** 0.5, rel=1e-2)


@pytest.mark.parametrize("overflow", [False, True])
def test_a_fused_step_that_a_scaler_leaves_out_is_not_read(overflow: bool) -> None:
    torch.manual_seed(0)
    model = Net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    tap = OptimizerState(examined(model, optimizer))
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    tap.arm(Due(layers=True))
    x = torch.randn(8, 16)
    scaler.scale(model(x * (torch.inf if overflow else 1)).square().mean()).backward()
    scaler.step(optimizer)
    values = read(tap)
    if overflow:
        assert all(value != value for value in values.values())
    else:
        assert values["rms_t_msq", "head"] == pytest.approx(1, rel=1e-2), "the gradient is the unscaled one"


def test_two_optimizers_of_one_block_are_one_mean_and_a_frozen_half_is_left_out() -> None:
    torch.manual_seed(0)
    model = Net()
    block = model.blocks[0]
    first = torch.optim.AdamW(block[0].parameters(), lr=1e-3)  # type: ignore[index]
    second = torch.optim.AdamW([*block[1].parameters(), *model.blocks[1].parameters()], lr=1e-3)  # type: ignore[index]
    tap = OptimizerState(examined(model, first, second))
    tap.arm(Due(layers=True))
    backward(model, 1)
    first.step()
    second.step()
    found = read(tap)
    assert found["rms_t_msq", "blocks.0"] == pytest.approx(1, rel=1e-3), "in its first step g^2 is v_hat"
    sizes = dict(zip(tap.columns(), tap.weights().tolist(), strict=True))
    assert {site.name: n for (name, site), n in sizes.items() if name == "rms_t_msq"} == {
        "blocks.0": 32 + 272,
        "blocks.1": 32 + 272,
    }


@pytest.mark.parametrize("make", [torch.optim.SGD, torch.optim.Adafactor, torch.optim.Adamax])
def test_other_optimizers_are_not_read_and_said_once(
    make: type[torch.optim.Optimizer], caplog: pytest.LogCaptureFixture
) -> None:
    model = Net()
    optimizer = make(model.parameters(), lr=1e-3)
    tap = OptimizerState(examined(model, optimizer))
    with caplog.at_level(logging.WARNING, "stabmon"):
        for step in range(2):
            tap.arm(Due(layers=True))
            backward(model, step)
            optimizer.step()
    assert all(value != value for value in read(tap).values())
    assert [make.__name__ in record.getMessage() for record in caplog.records] == [True]


def test_nothing_is_read_when_nothing_is_due_and_no_hook_is_left_behind() -> None:
    model = Net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    tap = OptimizerState(examined(model, optimizer))
    tap.arm(Due())
    backward(model, 1)
    optimizer.step()
    assert all(value != value for value in read(tap).values())
    tap.detach()
    assert not optimizer._optimizer_step_post_hooks
