"""Dead and saturated hidden units against a search through what goes into the projections, unit by unit."""

from __future__ import annotations

import math
import re
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from transformers import GPT2Config, GPT2LMHeadModel

from stabmon.bench.waits import counting
from stabmon.settings import Settings
from stabmon.taps import Due
from stabmon.taps.parts import examine
from stabmon.taps.units import Units, find_projections
from tests.families import FAMILIES

Values = dict[tuple[str, str], float]
UNITS = 12


class Block(nn.Module):
    """norm, linear, activation, linear; as many hidden units as asked for."""

    def __init__(self, activation: Callable[[Tensor], Tensor], units: int = UNITS) -> None:
        super().__init__()
        self.ln, self.up, self.down = nn.LayerNorm(8), nn.Linear(8, units), nn.Linear(units, 8)
        self.activation = activation

    def forward(self, x: Tensor) -> Tensor:
        hidden: Tensor = self.down(self.activation(self.up(self.ln(x))))
        return hidden


class Net(nn.Module):
    def __init__(
        self,
        activation: Callable[[Tensor], Tensor] = torch.relu,
        recompute: bool | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.blocks = nn.ModuleList(Block(activation, units) for units in (UNITS, UNITS + 4))
        self.recompute = recompute
        self.to(dtype)

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = x + (block(x) if self.recompute is None else checkpoint(block, x, use_reentrant=self.recompute))
        return x


def attach(model: nn.Module) -> Units:
    tap = Units(examine(model, [torch.optim.SGD(model.parameters(), lr=0.1)], Settings()))
    tap.arm(Due(layers=True))
    return tap


def read(tap: Units) -> Values:
    return {(name, site.name): float(v) for (name, site), v in zip(tap.columns(), tap.read(), strict=True)}


def bias(model: Net, block: int, units: slice, value: float) -> None:
    """Their pre-activations are `value`, whatever comes in."""
    layer = model.blocks[block]
    assert isinstance(layer, Block)
    with torch.no_grad():
        layer.up.weight[units] = 0
        layer.up.bias[units] = value


def hidden(model: Net, batches: list[Tensor]) -> dict[str, Tensor]:
    """float64[N, U] of all batches by projection."""
    seen: dict[str, list[Tensor]] = {}
    handles = [
        module.register_forward_pre_hook(lambda _, args, name=name: seen.setdefault(name, []).append(args[0].detach()))
        for name, module in model.named_modules()
        if name.endswith("down")
    ]
    model.recompute = None
    with torch.no_grad():
        for x in batches:
            model(x)
    for handle in handles:
        handle.remove()
    return {name: torch.cat([x.flatten(0, -2) for x in found]).double() for name, found in seen.items()}


@pytest.mark.parametrize("recompute", [None, True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_unit_is_dead_that_no_token_of_any_micro_batch_moves(dtype: torch.dtype, recompute: bool | None) -> None:
    model = Net(torch.relu, recompute, dtype)
    bias(model, 1, slice(0, 3), -5)
    batches = [(torch.randn(1, 4, 8) * scale).to(dtype).requires_grad_() for scale in (1, 7, 2)]
    tap = attach(model)
    for x in batches:
        model(x).float().sum().backward()
    found = read(tap)
    counts = []
    for name, x_NU in hidden(model, batches).items():
        dead = [bool((unit.abs() <= x_NU.abs().mean() / 100).all()) for unit in x_NU.T]
        counts.append(sum(dead))
        assert found["dead_unit_share", name] == pytest.approx(sum(dead) / len(dead), rel=1e-6)
        assert found["saturated_unit_share", name] == 0
    assert 3 <= counts[1] < UNITS
    alone = [read_one(model, x) for x in batches]
    assert sum(found.values()) < min(sum(one.values()) for one in alone)


def read_one(model: Net, x: Tensor) -> Values:
    tap = attach(model)
    model(x)
    found = read(tap)
    tap.detach()
    return found


@pytest.mark.parametrize(("activation", "value"), [(torch.tanh, 9.0), (torch.tanh, -9.0), (torch.sigmoid, 9.0)])
def test_a_tanh_or_sigmoid_that_every_token_drives_to_its_bound_is_saturated(
    activation: Callable[[Tensor], Tensor], value: float
) -> None:
    model = Net(activation)
    bias(model, 0, slice(0, 4), value)
    found = read_one(model, torch.randn(2, 5, 8))
    assert found["saturated_unit_share", "blocks.0.down"] == pytest.approx(4 / UNITS)
    assert found["saturated_unit_share", "blocks.1.down"] == 0
    assert found["dead_unit_share", "blocks.0.down"] == 0


@pytest.mark.parametrize(
    ("activation", "dead", "alive"),
    [(nn.functional.gelu, -4.0, -2.0), (nn.functional.silu, -9.0, -3.0), (torch.sigmoid, -9.0, -2.0)],
)
def test_what_only_nearly_vanishes_is_dead_too(
    activation: Callable[[Tensor], Tensor], dead: float, alive: float
) -> None:
    model = Net(activation)
    bias(model, 0, slice(0, 4), dead)
    bias(model, 1, slice(0, 4), alive)
    found = read_one(model, torch.randn(2, 50, 8))
    assert found["dead_unit_share", "blocks.0.down"] == pytest.approx(4 / UNITS)
    assert found["dead_unit_share", "blocks.1.down"] == 0


def test_a_relu_of_one_is_not_saturated_and_all_units_at_0_are_dead() -> None:
    model = Net(torch.relu)
    bias(model, 0, slice(None), -1)
    bias(model, 1, slice(None), 2)
    found = read_one(model, torch.randn(2, 5, 8))
    assert found["dead_unit_share", "blocks.0.down"] == 1
    assert found["saturated_unit_share", "blocks.1.down"] == found["dead_unit_share", "blocks.1.down"] == 0


def test_a_value_that_is_not_finite_is_told_as_inf_and_no_call_as_not_read() -> None:
    x = torch.randn(2, 5, 8)
    x[1, 2, 3] = torch.nan
    assert set(read_one(Net(), x).values()) == {math.inf}
    assert all(math.isnan(value) for value in read(attach(Net())).values())


def test_what_was_not_due_or_is_no_training_is_not_read() -> None:
    model = Net()
    tap = attach(model)
    tap.arm(Due())
    model(torch.randn(1, 2, 8))
    assert all(math.isnan(value) for value in read(tap).values())
    tap.arm(Due(layers=True))
    with torch.no_grad():
        model(torch.randn(1, 2, 8))
    assert all(math.isnan(value) for value in read(tap).values())


def test_padding_neither_keeps_a_unit_alive_nor_from_saturation() -> None:
    """What the padded positions hold is set to 100 or to 0 on the way into the projection."""
    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(n_embd=8, n_layer=1, n_head=2, vocab_size=16, n_positions=8, n_inner=UNITS))
    ids, mask = torch.randint(16, (2, 6)), torch.tensor([[1] * 6, [1, 1, 1, 0, 0, 0]])
    for filler in (100.0, 0.0):

        def fill(_: nn.Module, args: tuple[Tensor, ...], value: float = filler) -> Tensor:
            row = torch.tensor([0.0] * 3 + [1.0] * 2 + [0.3] * (UNITS - 5)).expand(2, 6, -1)
            return row.where(mask[..., None] > 0, value)

        handle = model.transformer.h[0].mlp.c_proj.register_forward_pre_hook(fill)
        tap = attach(model)
        model(input_ids=ids, attention_mask=mask)
        found = read(tap)
        assert found["dead_unit_share", "transformer.h.0.mlp.c_proj"] == 3 / UNITS
        assert found["saturated_unit_share", "transformer.h.0.mlp.c_proj"] == pytest.approx(2 / UNITS)
        handle.remove()
        tap.detach()


def test_it_never_waits_for_the_device() -> None:
    model = GPT2LMHeadModel(GPT2Config(n_embd=8, n_layer=1, n_head=2, vocab_size=16, n_positions=8))
    tap = attach(model)
    ids, mask = torch.randint(16, (2, 6)), torch.tensor([[1] * 6, [1, 1, 1, 0, 0, 0]])
    with counting(torch.device("cpu")) as waits:
        model(input_ids=ids, attention_mask=mask)
        tap.read()
        tap.weights()
    assert waits.count == 0


def test_values_count_in_means_over_ranks_by_their_tokens() -> None:
    model = Net()
    tap = attach(model)
    for tokens in (3, 4):
        model(torch.randn(2, tokens, 8))
    assert tap.weights().tolist() == [14] * 4


ENDS = re.compile(r"(?<!attention\.)(c_proj|fc_out|dense_4h_to_h|fc2|down_proj|output\.dense|wo|pwconv2|linear2)$")
WITHOUT = ("Mixtral", "ConvNeXt of timm", "ResNet of timm")
"""Experts, and convolutions."""


@pytest.mark.parametrize("family", FAMILIES)
def test_in_each_block_the_projection_out_of_its_feed_forward_part_is_found(family: str) -> None:
    model = FAMILIES[family].make()
    parts = examine(model, [torch.optim.SGD(model.parameters(), lr=0.1)], Settings())
    found = find_projections(model, parts.blocks)
    assert len(found) == (0 if family in WITHOUT else FAMILIES[family].blocks)
    assert all(ENDS.search(p.name) for p in found)


class Meta(nn.Module):
    """A feed-forward part with its way out in the middle, as in Meta's Llama."""

    def __init__(self) -> None:
        super().__init__()
        self.w1, self.w2, self.w3 = nn.Linear(4, 9), nn.Linear(9, 4), nn.Linear(4, 9)


def test_the_layer_that_makes_vectors_shorter_is_the_way_out() -> None:
    model = nn.ModuleDict({"a": Meta(), "b": nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)), "c": nn.Linear(4, 4)})
    assert [(p.name, p.width) for p in find_projections(model, ["a", "b", "c"])] == [("a.w2", 9), ("b.1", 4)]


def test_after_detach_no_hook_is_left() -> None:
    model = Net()
    tap = attach(model)
    before = sum(len(m._forward_pre_hooks) for m in model.modules())
    tap.detach()
    assert before - sum(len(m._forward_pre_hooks) for m in model.modules()) == 2
