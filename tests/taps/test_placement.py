"""Blocks, norms and placements of the families of docs/models.md."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from stabmon.taps.model.anatomy import find_blocks, find_norms
from stabmon.taps.model.placement import classify, sentence
from stabmon.taps.model.tracing import Trace, trace
from stabmon.taps.probe.calls import Call
from tests.families import FAMILIES, table

PAGE = Path(__file__).parents[2] / "docs" / "models.md"


def traced(model: nn.Module, inputs: dict[str, Tensor]) -> tuple[Trace, list[str]]:
    norms = find_norms(model)
    blocks = find_blocks(model, norms)
    return trace(model, Call((), inputs), [norm.name for norm in norms], blocks), blocks


def placed(model: nn.Module, **inputs: Tensor) -> dict[str, str]:
    return classify(*traced(model, inputs))


@pytest.mark.parametrize("name", FAMILIES)
def test_blocks_norms_and_placements_are_those_of_the_architecture(name: str) -> None:
    torch.manual_seed(0)
    family = FAMILIES[name]
    model = family.make()
    found, blocks = traced(model, family.inputs())
    assert len(find_norms(model)) == family.norms
    assert len(blocks) == family.blocks
    assert Counter(classify(found, blocks).values()) == Counter(family.placed)


def test_the_page_shows_this_table() -> None:
    assert table() in PAGE.read_text(encoding="utf-8")


class Block(nn.Module):
    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.one, self.two = nn.LayerNorm(8), nn.LayerNorm(8)
        self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        if self.kind == "routed":  # a shared expert beside another, and then the sum
            x = x + self.a(self.one(x))
            y = self.two(x)
            return x + (self.a(y) + self.b(y))
        if self.kind == "scaled":  # residual and branch are multiplied by numbers, the norm is given another view
            y = x.transpose(0, 1).contiguous().transpose(0, 1)
            x = 0.5 * x + 0.7 * self.a(self.one(y))
            return x.add_(self.b(self.two(x)))
        if self.kind == "parallel":
            return x + self.a(self.one(x)) + self.b(self.two(x))
        x = self.one(x + self.a(x))
        return self.two(x + self.b(x))


class Network(nn.Module):
    def __init__(self, kind: str, blocks: int = 2) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block(kind) for _ in range(blocks))

    def forward(self, x: Tensor) -> Tensor:
        x = x * 1.0
        for block in self.blocks:
            x = block(x)
        return x.sum()


@pytest.mark.parametrize(
    ("kind", "placement"), [("routed", "pre"), ("scaled", "pre"), ("parallel", "parallel"), ("post", "post")]
)
@pytest.mark.parametrize("blocks", [2, 3])
def test_sums_tell_the_placement(kind: str, placement: str, blocks: int) -> None:
    found = placed(Network(kind, blocks), x=torch.randn(2, 3, 8))
    assert set(found.values()) == {placement}
    assert len(found) == 2 * blocks


def test_the_sentence() -> None:
    pre = {"h.0.ln": "pre", "h.0.attn.q_norm": "inner", "ln_f": "final"}
    assert sentence(pre, 12) == "12 blocks, Pre-LN, final norm present"
    assert sentence({"h.0.ln": "post"}, 1) == "1 block, Post-LN, no final norm"
    assert sentence({"a": "pre", "b": "post"}, 2) == "2 blocks, Pre-LN and Post-LN, no final norm"
    assert sentence({"a": ""}, 2) == "2 blocks, placement unknown"
    assert sentence({}, 0) == "0 blocks, no norm layers"


def test_following_a_forward_leaves_the_model_as_it_was() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Dropout(0.5), nn.BatchNorm1d(8), nn.Linear(8, 8)).train()
    model[1].eval()
    hooks = [len(m._forward_pre_hooks) + len(m._forward_hooks) for m in model.modules()]
    before = {name: value.clone() for name, value in model.state_dict().items()}
    x = torch.randn(4, 8)
    state = torch.get_rng_state()
    traced(model, {"input": x})
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert [m.training for m in model.modules()] == [True, True, False, True]
    assert [len(m._forward_pre_hooks) + len(m._forward_hooks) for m in model.modules()] == hooks
    assert torch.equal(torch.get_rng_state(), state)
    assert all(p.grad is None for p in model.parameters())


def test_norms_that_are_functions_are_named_by_the_module_that_calls_them() -> None:
    class Plain(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return nn.functional.layer_norm(x, (8,)) + nn.functional.rms_norm(x, (8,))

    found, _ = traced(nn.Sequential(nn.LayerNorm(8), Plain()), {"input": torch.randn(2, 8)})
    assert found.functional == {"1 (layer_norm)", "1 (rms_norm)"}
