"""Extremes against a plain search through the norms' inputs."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from transformers import GPT2Config, GPT2LMHeadModel

from stabmon.catalog import STATISTICS, Array
from stabmon.settings import Settings
from stabmon.taps import Due
from stabmon.taps.extremes import Extremes, measure
from stabmon.taps.parts import examine

HALVES = [torch.float32, torch.bfloat16, torch.float16]


class Net(nn.Module):
    """Two blocks of norm and linear, then a final norm."""

    def __init__(self, recompute: bool | None = None) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 8)) for _ in range(2))
        self.final = nn.LayerNorm(8)
        self.recompute = recompute

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = x + (block(x) if self.recompute is None else checkpoint(block, x, use_reentrant=self.recompute))
        return self.final(x)


def attach(model: nn.Module) -> Extremes:
    tap = Extremes(examine(model, [torch.optim.SGD(model.parameters(), lr=0.1)], Settings()))
    tap.arm(Due(layers=True))
    return tap


def shown(statistic: str, value: float) -> float:
    """The derived form of one stored value."""
    formula = STATISTICS[statistic].formula
    assert formula is not None
    result: Array = formula(np.array([value], dtype=np.float32))
    return float(result[0])


def read(tap: Extremes) -> dict[tuple[str, str], float]:
    found = {(name, site.name): float(v) for (name, site), v in zip(tap.columns(), tap.read(), strict=True)}
    for (name, site), value in list(found.items()):
        if name == "activation_max_key":
            found["channel", site] = shown("activation_max_channel", value)
        if name == "range_used":
            found["headroom", site] = shown("precision_headroom", value)
    return found


def inputs_of(model: Net, batches: list[Tensor]) -> dict[str, Tensor]:
    """All inputs of every norm, tokens under each other, float64."""
    seen: dict[str, list[Tensor]] = {}
    handles = [
        module.register_forward_pre_hook(lambda _, args, name=name: seen.setdefault(name, []).append(args[0].detach()))
        for name, module in model.named_modules()
        if isinstance(module, nn.LayerNorm)
    ]
    model.recompute = None
    with torch.no_grad():
        for x in batches:
            model(x)
    for handle in handles:
        handle.remove()
    return {name: torch.cat([x.reshape(-1, x.shape[-1]) for x in found]).double() for name, found in seen.items()}


@pytest.mark.parametrize("recompute", [None, True, False])
@pytest.mark.parametrize("dtype", HALVES)
def test_over_micro_batches_the_largest_value_brings_its_channel_and_headroom(
    dtype: torch.dtype, recompute: bool | None
) -> None:
    torch.manual_seed(0)
    model = Net(recompute).to(dtype)
    batches = [(torch.randn(3, 5, 8) * scale).to(dtype).requires_grad_() for scale in (1, 7, 2)]
    tap = attach(model)
    for x in batches:
        model(x).sum().backward()
    found = read(tap)
    for name, x in inputs_of(model, batches).items():
        largest = float(x.abs().max())
        assert found["activation_max", name] == largest
        assert found["channel", name] == int(x.abs().max(0).values.argmax())
        assert found["headroom", name] == pytest.approx(math.log(torch.finfo(dtype).max / largest), rel=1e-5)


def test_a_batch_norm_s_channels_are_those_of_dimension_1() -> None:
    model = nn.Sequential(nn.Conv2d(3, 6, 1), nn.BatchNorm2d(6))
    tap = attach(model)
    x = torch.randn(2, 3, 4, 4)
    model(x).sum().backward()
    size = model[0](x).detach().abs()
    found = read(tap)
    assert found["activation_max", "1"] == float(size.max())
    assert found["channel", "1"] == int(size.amax((0, 2, 3)).argmax())


def test_headroom_of_float16_ends_at_65504_and_an_overflow_has_none() -> None:
    x = torch.tensor([[65504.0, 1.0]], dtype=torch.float16)
    assert shown("precision_headroom", float(measure(x)[2])) == 0
    assert float(measure(x * 2)[0]) == math.inf
    assert shown("precision_headroom", float(measure(x * 2)[2])) == -math.inf
    assert shown("activation_max_channel", float(measure(x * 2)[1])) == 0


def test_a_nan_is_read_as_not_finite_and_its_channel_is_told() -> None:
    x = torch.ones(4, 6)
    x[2, 5] = torch.nan
    largest, key, used = measure(x)
    assert (float(largest), float(used)) == (math.inf, math.inf)
    assert shown("activation_max_channel", float(key)) == 5


@pytest.mark.parametrize("channel", [0, 1, 255, 256, 65535])
def test_channels_up_to_65535_are_exact(channel: int) -> None:
    x = torch.zeros(2, 1 << 16)
    x[1, channel] = -3e-4
    assert shown("activation_max_channel", float(measure(x)[1])) == channel


def test_the_channel_is_that_of_the_larger_of_two_that_are_a_hundredth_apart() -> None:
    x = torch.zeros(1, 600)
    for value in torch.logspace(-30, 30, 61).tolist():
        x[0, 7], x[0, 500] = 1.01 * value, value
        assert shown("activation_max_channel", float(measure(x)[1])) == 7


def test_an_input_of_zeros_has_a_channel_and_a_finite_headroom() -> None:
    largest, key, used = measure(torch.zeros(2, 4))
    assert float(largest) == 0
    assert shown("activation_max_channel", float(key)) in range(4)
    assert shown("precision_headroom", float(used)) == pytest.approx(math.log(2.0**254), rel=1e-3)


def test_the_crest_is_the_largest_over_the_rms() -> None:
    formula = STATISTICS["activation_crest"].formula
    assert formula is not None
    found = formula(np.array([6, 0], dtype=np.float32), np.array([4, 0], dtype=np.float32))
    assert found[0] == 3
    assert np.isnan(found[1])


@pytest.mark.parametrize("place", [0, 1, 7])
def test_padding_is_left_out_and_the_first_position_is_not(place: int) -> None:
    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(n_layer=2, n_head=2, n_embd=16, vocab_size=31, n_positions=8))
    tap = attach(model)
    ids, mask = torch.randint(1, 31, (2, 8)), torch.ones(2, 8, dtype=torch.long)
    mask[0, 0] = 0
    with torch.no_grad():
        model.transformer.wte.weight[0] = 0
        model.transformer.wte.weight[0, 5] = 100
    for row, position in ((0, 0), (1, place)):
        ids[row, position] = 0
    mask[1, 7:] = 0
    model(input_ids=ids, attention_mask=mask, use_cache=False).logits.sum().backward()
    found = read(tap)
    seen = place != 7
    assert (found["activation_max", "transformer.h.0.ln_1"] > 50) == seen
    assert (found["channel", "transformer.h.0.ln_1"] == 5) == seen


def test_an_evaluation_and_a_step_that_is_not_due_are_not_read() -> None:
    model = Net()
    tap = attach(model)
    model(torch.randn(3, 5, 8)).sum().backward()
    before = read(tap)
    model.eval()
    with torch.no_grad():
        model(100 * torch.randn(3, 5, 8))
    assert read(tap) == before
    tap.arm(Due())
    model.train()(torch.randn(3, 5, 8))
    assert all(math.isnan(value) for value in read(tap).values())
