"""Tensors are swapped in and back wherever they are, also where a module has several names."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from stabmon import Monitor
from stabmon.taps.probe.swapped import swapped

WIDTH, VOCABULARY = 16, 50


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.linear = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return x + F.gelu(self.linear(self.norm(x)))


class Network(nn.Module):
    """Three blocks, and what is shared among them."""

    def __init__(self, share: Callable[[list[Block]], list[Block]]) -> None:
        super().__init__()
        self.token = nn.Embedding(VOCABULARY, WIDTH)
        self.blocks = nn.ModuleList(share([Block() for _ in range(3)]))
        self.statistics = nn.ModuleList([nn.BatchNorm1d(WIDTH)] * 2)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.head.weight = self.token.weight
        self.alias = self.token

    def forward(self, tokens_BT: Tensor) -> Tensor:
        x_BTD = self.token(tokens_BT)
        for block in self.blocks:
            x_BTD = block(x_BTD)
        for statistics in self.statistics:
            x_BTD = statistics(x_BTD.flatten(0, 1)).view_as(x_BTD)
        logits_BTV: Tensor = self.head(x_BTD)
        return logits_BTV


def one_block(blocks: list[Block]) -> list[Block]:
    return blocks[:1] * 3


def one_norm(blocks: list[Block]) -> list[Block]:
    for block in blocks:
        block.norm = blocks[0].norm
    return blocks


def one_weight(blocks: list[Block]) -> list[Block]:
    for block in blocks:
        block.linear.weight = blocks[0].linear.weight
    return blocks


SHARED = pytest.mark.parametrize("share", [list, one_block, one_norm, one_weight])


def held(model: nn.Module) -> dict[str, int]:
    """Which tensor is in which place."""
    return {
        f"{name}.{attribute}": id(tensor)
        for name, module in model.named_modules(remove_duplicate=False)
        for attribute, tensor in {**module._parameters, **module._buffers}.items()
    }


@SHARED
def test_every_place_holds_the_other_tensor_meanwhile_and_the_own_one_afterwards(
    share: Callable[[list[Block]], list[Block]],
) -> None:
    model = Network(share)
    before = held(model)
    other = {id(p): torch.zeros_like(p) for p in model.parameters()}
    tokens = torch.zeros(2, 3, dtype=torch.long)
    assert (swapped(model, other, lambda: model(tokens)) == 0).all()
    assert held(model) == before
    with pytest.raises(ZeroDivisionError):
        swapped(model, other, lambda: 1 / 0)
    assert held(model) == before


def trained(share: Callable[[list[Block]], list[Block]], watched: bool) -> list[Tensor]:
    """Parameters and buffers after 60 steps, in the last of which the probe is read, after the dense ones."""
    torch.manual_seed(0)
    model = Network(share)
    before = held(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    monitor = Monitor(model, optimizer, serve=False, log=False, dense_steps=10, probe_every=20) if watched else None
    for _ in range(60):
        batch = torch.randint(VOCABULARY, (4, 9))
        loss = F.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if monitor:
            monitor.step(loss, targets=batch[:, 1:])
    if monitor:
        monitor.close()
        assert monitor.latest
        assert monitor.latest.scalar("total_output_change_ratio") > 0
    assert held(model) == before
    return [*model.parameters(), *model.buffers()]


@SHARED
def test_a_training_is_bit_for_bit_that_without_stabmon(share: Callable[[list[Block]], list[Block]]) -> None:
    off, on = trained(share, watched=False), trained(share, watched=True)
    assert all(torch.equal(a, b) for a, b in zip(off, on, strict=True))
