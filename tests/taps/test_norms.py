from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

from stabmon.taps import Due
from stabmon.taps.forward import Forward
from stabmon.taps.model.anatomy import find_norms
from stabmon.taps.norms import MAX_TOKENS, Norms, context_share, measure, similarity

DUE = Due(layers=True)


class Net(nn.Module):
    """Two blocks of norm and linear, then a final norm."""

    def __init__(self, recompute: bool | None = None) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 8)) for _ in range(2))
        self.final = nn.LayerNorm(8)
        self.recompute = recompute

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = x + (
                block(x) if self.recompute is None else checkpoint(block, x, use_reentrant=self.recompute)
            )  # fmt: skip
        return self.final(x)


def fail(error: Exception) -> None:
    raise error


def attach(model: nn.Module, due: Due = DUE) -> Norms:
    norms = find_norms(model)
    forward = Forward(model, [norm.name for norm in norms], fail)
    tap = Norms(norms, ["blocks.0", "blocks.1"], forward, torch.device("cpu"))
    tap.arm(due)
    return tap


def read(tap: Norms) -> dict[tuple[str, str], float]:
    return {(statistic, site.name): float(v) for (statistic, site), v in zip(tap.columns(), tap.read(), strict=True)}


def inputs(seed: int = 0) -> Tensor:
    return torch.randn(3, 5, 8, generator=torch.Generator().manual_seed(seed)) * 3 + 1


@pytest.mark.parametrize("kind", ["layer", "rms"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_readings_equal_a_float64_computation(kind: str, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    module = nn.LayerNorm(8) if kind == "layer" else nn.RMSNorm(8, eps=1e-6)
    nn.init.normal_(module.weight)
    (norm,) = find_norms(nn.Sequential(module))
    x = inputs().to(dtype)
    tokens = x.double().reshape(15, 8)
    y = tokens - tokens.mean(1, keepdim=True) if kind == "layer" else tokens
    var = y.square().mean(1)
    unit = y / y.norm(dim=1, keepdim=True)
    cosines = unit @ unit.T
    out = y / (var[:, None] + norm.eps).sqrt() * module.weight.detach().double()
    spread = out - out.mean(0)
    gamma = module.weight.detach().double()
    expected = [
        tokens.square().mean(),
        var.mean(),
        (gamma.square().mean().sqrt() / (var + norm.eps).sqrt()).mean(),
        (cosines.sum() - 15) / (15 * 14),
        spread.square().sum() / out.square().sum(),
    ]
    found, weight = measure(norm, x)
    assert weight == 15
    torch.testing.assert_close(found.double(), torch.tensor(expected, dtype=torch.float64), rtol=1e-5, atol=1e-6)


def test_a_collapsed_output_has_a_share_down_to_1e_12() -> None:
    torch.manual_seed(0)
    z = torch.randn(8).expand(200, 8) + 1e-6 * torch.randn(200, 8)
    exact = z.double() - z.double().mean(0)
    expected = exact.square().sum() / z.double().square().sum()
    assert 1e-13 < expected < 1e-11
    assert float(context_share(z)) == pytest.approx(float(expected), rel=0.1)


def test_similarity_of_independent_tokens_is_zero_and_of_equal_ones_one() -> None:
    torch.manual_seed(0)
    assert abs(float(similarity(torch.randn(200, 64)))) < 0.01
    assert float(similarity(torch.randn(64).expand(200, 64))) == pytest.approx(1, abs=1e-5)


def test_many_tokens_are_thinned_without_preferring_a_position() -> None:
    # 4096 tokens in sequences of 16: an even stride of 16 would always land on position 0.
    x = torch.zeros(256, 16, 8)
    x[:, 0] = torch.randn(8)
    x[:, 1:] = torch.randn(8)
    (norm,) = find_norms(nn.Sequential(nn.LayerNorm(8)))
    share = float(measure(norm, x)[0][-1])
    assert share > 0.05
    assert x.reshape(-1, 8)[:: (16 | 1)].shape[0] <= MAX_TOKENS


@pytest.mark.parametrize("kind", ["layer", "rms"])
def test_tokens_that_do_not_count_change_nothing_whatever_they_hold(kind: str) -> None:
    (norm,) = find_norms(nn.Sequential(nn.LayerNorm(8) if kind == "layer" else nn.RMSNorm(8)))
    x = inputs()
    weights = torch.ones(3, 5)
    weights[0, 3:], weights[2, 0] = 0, 0
    x[0, 3], x[0, 4], x[2, 0] = torch.nan, torch.inf, 1e30
    expected, _ = measure(norm, x[weights > 0])
    found, weight = measure(norm, x, weights)
    assert weight == 12
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)


def test_micro_batches_count_by_their_tokens() -> None:
    model = Net()
    tap = attach(model)
    first, second = inputs(1), inputs(2)[:2, :3] * 5
    model(first)
    model(second)
    found = read(tap)["norm_input_msq", "blocks.0.0"]
    assert found == pytest.approx(float((first.square().sum() + second.square().sum()) / (21 * 8)), rel=1e-6)
    weights = dict(zip(tap.columns(), tap.weights().tolist(), strict=True))
    assert {weight for (statistic, _), weight in weights.items() if statistic != "context_share"} == {21.0}


def test_padding_and_first_tokens_of_a_model_of_tokens_do_not_count() -> None:
    class Words(Net):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(10, 8)

        def forward(self, ids: Tensor, attention_mask: Tensor) -> Tensor:
            return super().forward(self.embedding(ids))

    model = Words()
    tap = attach(model)
    ids, mask = torch.arange(8).reshape(2, 4), torch.tensor([[1, 1, 1, 0], [1, 1, 1, 1]])
    model(ids, mask)
    kept = model.embedding(torch.tensor([1, 2, 5, 6, 7])).detach()
    assert read(tap)["norm_input_msq", "blocks.0.0"] == pytest.approx(float(kept.square().mean()), rel=1e-6)


@pytest.mark.parametrize("recompute", [True, False])
def test_a_forward_repeated_by_checkpointing_is_read_once(recompute: bool) -> None:
    plain, again = Net(), Net(recompute)
    again.load_state_dict(plain.state_dict())
    readings = []
    for model in (plain, again):
        tap = attach(model)
        model(inputs().requires_grad_()).sum().backward()
        readings.append(read(tap))
    assert readings[0] == readings[1]


def test_evaluation_and_no_grad_forwards_are_not_read() -> None:
    model = Net()
    tap = attach(model)
    model(inputs(1))
    before = read(tap)
    model.eval()
    model(inputs(2) * 100)
    model.train()
    with torch.no_grad():
        model(inputs(2) * 100)
    assert read(tap) == before


def test_between_samples_only_the_last_norm_is_read() -> None:
    model = Net()
    tap = attach(model)
    model(inputs())
    tap.settle()
    sampled = read(tap)
    tap.arm(Due(layers=False))
    model(inputs())
    found = {key for key, value in read(tap).items() if value == value}
    assert found == {("final_norm_input_msq", ""), ("context_share", "")}
    assert read(tap)["context_share", ""] == pytest.approx(sampled["context_share", ""], rel=1e-6)
    assert read(tap)["final_norm_input_msq", ""] == pytest.approx(sampled["norm_input_msq", "final"], rel=1e-6)


def test_what_is_not_finite_is_inf_and_what_is_not_read_nan() -> None:
    model = Net()
    tap = attach(model)
    model(inputs().index_fill_(2, torch.tensor(3), torch.nan))
    assert read(tap)["norm_input_msq", "blocks.0.0"] == float("inf")
    tap.arm(Due(layers=True))
    assert all(value != value for value in read(tap).values())


def test_a_norm_that_no_forward_calls_is_named() -> None:
    model = Net()
    model.unused = nn.LayerNorm(8)
    tap = attach(model)
    model(inputs())
    assert tap.unseen == ["unused"]
    assert [site.name for site in tap.sites.values()] == ["blocks.0.0", "blocks.1.0", "final"]


def test_readings_leave_gradients_bit_identical() -> None:
    gradients = []
    for watched in (False, True):
        torch.manual_seed(0)
        model = Net(recompute=False)
        if watched:
            attach(model)
        model(inputs().requires_grad_()).square().sum().backward()
        gradients.append([p.grad for p in model.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*gradients, strict=True))


def test_reading_brings_nothing_from_the_host_to_the_device_after_the_first_step() -> None:
    class Operations(TorchDispatchMode):
        def __init__(self) -> None:
            super().__init__()
            self.names: set[str] = set()

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            self.names.add(func.overloadpacket.__name__)
            return func(*args, **(kwargs or {}))

    model = Net()
    tap = attach(model)
    model(inputs())
    with Operations() as first:
        tap.read()
    tap.settle()
    with Operations() as later:
        tap.read()
    # `lift_fresh` is a tensor made of Python numbers: on a GPU, a copy that is waited for.
    assert "lift_fresh" in first.names
    assert "lift_fresh" not in later.names
