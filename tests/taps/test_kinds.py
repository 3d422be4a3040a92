"""Readings of each kind of norm layer against float64 loops over what is normalised together."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from transformers.models.cohere.modeling_cohere import CohereLayerNorm
from transformers.models.convnext.modeling_convnext import ConvNextLayerNorm
from transformers.models.detr.modeling_detr import DetrFrozenBatchNorm2d
from transformers.models.gemma3.modeling_gemma3 import Gemma3RMSNorm
from transformers.models.llama4.modeling_llama4 import Llama4TextL2Norm
from transformers.models.olmo.modeling_olmo import OlmoLayerNorm
from transformers.models.qwen3.modeling_qwen3 import Qwen3RMSNorm

from stabmon.taps.model.anatomy import find_norms
from stabmon.taps.model.kinds import Channels, Features, Norm
from stabmon.taps.norms import measure
from tests.timm_models import timm

Group = Callable[[Tensor], list[tuple[Tensor, Tensor]]]
"""From an input and gamma per channel: each group's numbers, and the gammas that they are multiplied by."""


def only(module: nn.Module) -> Norm:
    for parameter in module.parameters():
        nn.init.normal_(parameter, 1.0, 0.3)
    (norm,) = find_norms(nn.Sequential(module))
    return norm


def image(seed: int = 0) -> Tensor:
    return torch.randn(3, 8, 4, 5, generator=torch.Generator().manual_seed(seed)) * 2 + 0.5


def per_position(x: Tensor, gamma: Tensor) -> list[tuple[Tensor, Tensor]]:
    return [(x[b, :, i, j], gamma) for b in range(3) for i in range(4) for j in range(5)]


def per_channel(x: Tensor, gamma: Tensor) -> list[tuple[Tensor, Tensor]]:
    return [(x[:, c], gamma[c]) for c in range(8)]


def per_sample_and_channel(x: Tensor, gamma: Tensor) -> list[tuple[Tensor, Tensor]]:
    return [(x[b, c], gamma[c]) for b in range(3) for c in range(8)]


def in_groups(number: int) -> Callable[[Tensor, Tensor], list[tuple[Tensor, Tensor]]]:
    def group(x: Tensor, gamma: Tensor) -> list[tuple[Tensor, Tensor]]:
        size = 8 // number
        parts = [slice(g * size, (g + 1) * size) for g in range(number)]
        return [(x[b, part], gamma[part]) for b in range(3) for part in parts]

    return group


def naive(groups: list[tuple[Tensor, Tensor]], eps: float, centred: bool) -> list[float]:
    """norm_input_msq, norm_input_var, norm_gain."""
    var = [float(((v - v.mean()) if centred else v).square().mean()) for v, _ in groups]
    gains = [float(g.square().mean().sqrt()) / (s + eps) ** 0.5 for s, (_, g) in zip(var, groups, strict=True)]
    return [
        float(torch.stack([v.square().mean() for v, _ in groups]).mean()),
        sum(var) / len(var),
        sum(gains) / len(gains),
    ]


KINDS = {
    "GroupNorm": (lambda: nn.GroupNorm(4, 8), in_groups(4), True),
    "GroupNorm of timm": (lambda: timm.layers.GroupNorm1(8), in_groups(1), True),
    "BatchNorm": (lambda: nn.BatchNorm2d(8), per_channel, True),
    "SyncBatchNorm": (lambda: nn.SyncBatchNorm(8), per_channel, True),
    "BatchNorm and activation": (lambda: timm.layers.BatchNormAct2d(8), per_channel, True),
    "InstanceNorm": (lambda: nn.InstanceNorm2d(8, affine=True), per_sample_and_channel, True),
    "LayerNorm, channels first, timm": (lambda: timm.layers.LayerNorm2d(8), per_position, True),
    "LayerNorm, channels first, transformers": (
        lambda: ConvNextLayerNorm(8, data_format="channels_first"),
        per_position,
        True,
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_norms_of_images(kind: str) -> None:
    make, group, centred = KINDS[kind]
    torch.manual_seed(0)
    norm = only(make())
    x, gamma = image(), norm.module.weight.detach().double()
    found, weight = measure(norm, x)
    expected = naive(group(x.double(), gamma), norm.eps, centred)
    assert found[:3].tolist() == pytest.approx(expected, rel=1e-5)
    assert weight == len(group(x, gamma))


@pytest.mark.parametrize("kind", ["GroupNorm", "GroupNorm of timm", "LayerNorm, channels first, timm"])
def test_similarity_and_share_of_images_are_those_of_their_positions(kind: str) -> None:
    make, *_ = KINDS[kind]
    norm = only(make())
    x = image()
    bias = norm.module.bias.detach()
    y = norm.module(x).detach().double().movedim(1, -1).reshape(60, 8)
    unit = (y - bias) / norm.module.weight.detach()
    unit = unit / unit.norm(dim=1, keepdim=True)
    spread = y - y.mean(0)
    found, _ = measure(norm, x)
    assert float(found[3]) == pytest.approx(float(((unit @ unit.T).sum() - 60) / (60 * 59)), rel=1e-3, abs=1e-5)
    assert float(found[4]) == pytest.approx(float(spread.square().sum() / y.square().sum()), rel=1e-4)


@pytest.mark.parametrize("module", [nn.BatchNorm2d(8), nn.InstanceNorm2d(8), nn.BatchNorm2d(8).eval()])
def test_norms_that_take_the_mean_over_positions_away_have_no_similarity_and_no_share(module: nn.Module) -> None:
    found, _ = measure(only(module), image())
    assert found.isnan().tolist() == [False, False, False, True, True]


def test_a_batch_norm_of_vectors_normalises_over_the_batch() -> None:
    norm = only(nn.BatchNorm1d(8))
    x = torch.randn(16, 8) * 3
    var = x.double().var(0, correction=0)
    gain = (norm.module.weight.detach().double().abs() / (var + 1e-5).sqrt()).mean()
    found, _ = measure(norm, x)
    assert found[1:3].tolist() == pytest.approx([float(var.mean()), float(gain)], rel=1e-5)


@pytest.mark.parametrize("make", [lambda: nn.BatchNorm2d(8).eval(), lambda: DetrFrozenBatchNorm2d(8)])
def test_a_frozen_batch_norm_divides_by_what_it_keeps(make: Callable[[], nn.Module]) -> None:
    module = make()
    module.running_var.copy_(torch.arange(1.0, 9.0))
    norm = only(module)
    assert isinstance(norm.over, Channels)
    weight = module.weight.detach().double().abs()
    gain = float((weight / (module.running_var.double() + norm.eps).sqrt()).mean())
    found, _ = measure(norm, image())
    assert found[1:3].tolist() == pytest.approx([4.5, gain], rel=1e-5)


def qk_input() -> Tensor:
    return torch.randn(2, 3, 5, 8, generator=torch.Generator().manual_seed(1)) * 2


@pytest.mark.parametrize(
    ("module", "centred", "offset"),
    [
        (Qwen3RMSNorm(8), False, 0.0),
        (Gemma3RMSNorm(8), False, 1.0),
        (timm.layers.RmsNorm(8), False, 0.0),
        (CohereLayerNorm(8), True, 0.0),
        (nn.LayerNorm(8), True, 0.0),
    ],
)
def test_norms_over_a_head(module: nn.Module, centred: bool, offset: float) -> None:
    norm = only(module)
    x = qk_input()
    gamma = norm.module.weight.detach().double() + offset
    groups = [(head, gamma) for head in x.double().reshape(-1, 8)]
    found, weight = measure(norm, x)
    assert found[:3].tolist() == pytest.approx(naive(groups, norm.eps, centred), rel=1e-5)
    assert weight == 30


def test_a_norm_with_a_gamma_for_each_head() -> None:
    norm = only(CohereLayerNorm((5, 8)))
    x = qk_input()
    gamma = norm.module.weight.detach().double()
    groups = [(x[b, t, h].double(), gamma[h]) for b in range(2) for t in range(3) for h in range(5)]
    found, _ = measure(norm, x)
    assert found[:3].tolist() == pytest.approx(naive(groups, norm.eps, centred=True), rel=1e-5)


def test_norms_without_parameters() -> None:
    ones = torch.ones(8)
    x = torch.randn(6, 8) * 3 + 1
    for module, centred in ((OlmoLayerNorm(8), True), (Llama4TextL2Norm(1e-6), False)):
        norm = only(module)
        found, _ = measure(norm, x)
        groups = [(token, ones) for token in x.double()]
        assert found[:3].tolist() == pytest.approx(naive(groups, norm.eps, centred), rel=1e-5)


class UnitLength(nn.Module):
    """x / ||x||, times one learned number (ScaleNorm)."""

    def __init__(self) -> None:
        super().__init__()
        self.g = nn.Parameter(torch.tensor([2.0]))
        self.eps = 1e-6

    def forward(self, x: Tensor) -> Tensor:
        return self.g * x / x.norm(dim=-1, keepdim=True).clamp_min(self.eps)


def test_a_norm_that_divides_by_the_length_has_the_smaller_gain() -> None:
    norm = only(UnitLength())
    x = torch.randn(6, 8) * 3
    found, _ = measure(norm, x)
    expected = float((norm.module.g.detach() / x.norm(dim=1)).mean())
    assert float(found[2]) == pytest.approx(expected, rel=1e-4)


def test_a_norm_over_several_dimensions_normalises_them_together() -> None:
    norm = only(nn.LayerNorm((4, 8)))
    x = torch.randn(3, 4, 8)
    gamma = norm.module.weight.detach().double()
    found, weight = measure(norm, x)
    assert weight == 3
    assert found[:3].tolist() == pytest.approx(naive([(v, gamma) for v in x.double()], norm.eps, True), rel=1e-5)


def test_trying_out_leaves_module_and_random_state_alone() -> None:
    module = Gemma3RMSNorm(8)
    fired: list[int] = []
    module.register_forward_hook(lambda *_: fired.append(1))
    before, state = module.weight.detach().clone(), torch.get_rng_state()
    (norm,) = find_norms(nn.Sequential(module))
    assert norm.over == Features(8)
    assert fired == []
    assert torch.equal(module.weight, before)
    assert torch.equal(torch.get_rng_state(), state)
    assert module.weight.grad is None
