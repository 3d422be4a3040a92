"""Router load against a count of the choices that the models' own routers return."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import (
    DeepseekV3Config,
    DeepseekV3ForCausalLM,
    GptOssConfig,
    GptOssForCausalLM,
    Llama4ForCausalLM,
    Llama4TextConfig,
    MixtralConfig,
    MixtralForCausalLM,
    PreTrainedModel,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
    SwitchTransformersConfig,
    SwitchTransformersForConditionalGeneration,
)

from stabmon.taps import Due
from stabmon.taps.experts import Experts, find_routers, load
from tests.taps.attention_naive import Values, measured, parts_of, read

IDS = torch.randint(2, 61, (2, 14), generator=torch.Generator().manual_seed(0))
PADDED = (torch.arange(14) < torch.tensor([[14], [9]])).long()
TEXT: dict[str, Any] = {"vocab_size": 61, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
TEXT |= {"num_key_value_heads": 2, "intermediate_size": 8, "initializer_range": 0.4, "num_experts_per_tok": 2}
TEXT |= {"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 1}
DEEPSEEK = {"n_routed_experts": 8, "n_group": 4, "topk_group": 2, "moe_intermediate_size": 8, "n_shared_experts": 1}
DEEPSEEK |= {"first_k_dense_replace": 1, "kv_lora_rank": 8, "q_lora_rank": 8, "qk_rope_head_dim": 4}
DEEPSEEK |= {"qk_nope_head_dim": 4, "v_head_dim": 4}
SWITCH = {"vocab_size": 61, "d_model": 16, "d_kv": 8, "d_ff": 8, "num_layers": 2, "num_heads": 2, "num_experts": 4}
SWITCH |= {"num_sparse_encoder_layers": 1, "num_sparse_decoder_layers": 1, "expert_capacity": 5}

Choose = Callable[[Any], Tensor]
"""What a router returned -> indices of the experts, [token, choice]."""


def indices(returned: Any) -> Tensor:
    found: Tensor = returned[2]
    return found


def of_mask(returned: Any) -> Tensor:
    """The one expert of a token, -1 where its capacity was used up."""
    mask = returned[0].flatten(0, -2)
    return torch.where(mask.sum(-1) > 0, mask.argmax(-1), -1).unsqueeze(-1)


MODELS: dict[str, tuple[Callable[[], PreTrainedModel], Choose, int, int]] = {
    "mixtral": (lambda: MixtralForCausalLM(MixtralConfig(**TEXT, num_local_experts=4)), indices, 4, 2),
    "qwen3_moe": (
        lambda: Qwen3MoeForCausalLM(Qwen3MoeConfig(**TEXT, head_dim=8, num_experts=6, moe_intermediate_size=8)),
        indices,
        6,
        2,
    ),
    "deepseek_v3": (lambda: DeepseekV3ForCausalLM(DeepseekV3Config(**TEXT, **DEEPSEEK)), indices, 8, 1),
    "gpt_oss": (lambda: GptOssForCausalLM(GptOssConfig(**TEXT, head_dim=8, num_local_experts=4)), indices, 4, 2),
    "llama4": (
        lambda: Llama4ForCausalLM(
            Llama4TextConfig(
                **TEXT, head_dim=8, num_local_experts=4, intermediate_size_mlp=8, interleave_moe_layer_step=1
            )
        ),
        lambda returned: returned[1].topk(2, dim=-1).indices,
        4,
        2,
    ),
    "switch": (
        lambda: SwitchTransformersForConditionalGeneration(
            SwitchTransformersConfig(**SWITCH, decoder_start_token_id=0, pad_token_id=1)
        ),
        of_mask,
        4,
        2,
    ),
}


def call(model: nn.Module) -> Any:
    return model(input_ids=IDS, attention_mask=PADDED, labels=IDS)


def seeded(make: Callable[[], PreTrainedModel]) -> PreTrainedModel:
    torch.manual_seed(0)
    model = make()
    with torch.no_grad():  # several models begin with routers of zeros
        for router in find_routers(model):
            for p in model.get_submodule(router.name).parameters():
                p.normal_(std=0.5)
    return model.eval()


def counted(chosen: Tensor, weights: Tensor, experts: int) -> tuple[float, float, float]:
    """[busiest / even, entropy / ln(experts), share without a token], one token at a time."""
    counts: Counter[int] = Counter()
    for row, weight in zip(chosen.tolist(), weights.flatten().tolist(), strict=True):
        counts.update(expert for expert in row if weight and expert >= 0)
    total = sum(counts.values())
    entropy = -sum(n / total * math.log(n / total) for n in counts.values())
    return max(counts.values()) / total * experts, entropy / math.log(experts), 1 - len(counts) / experts


def of(found: Values, site: str) -> tuple[float, float, float]:
    return found["router_load_max", site], found["router_entropy", site], found["dead_experts", site]


@pytest.mark.parametrize("name", MODELS)
def test_load_is_that_of_the_routers_own_choices_without_padding(name: str) -> None:
    make, choose, experts, layers = MODELS[name]
    reference, found = seeded(make), measured(Experts, seeded(make), call)
    names = [router.name for router in find_routers(reference)]
    assert len(names) == layers
    assert set(found) == {(s, n) for s in ("router_load_max", "router_entropy", "dead_experts") for n in names}
    returned: dict[str, Any] = {}
    for site in names:
        reference.get_submodule(site).register_forward_hook(lambda *given, s=site: returned.update({s: given[2]}))
    call(reference)
    for site in names:
        weights = torch.ones(2, 14) if "decoder" in site else PADDED
        assert of(found, site) == pytest.approx(counted(choose(returned[site]), weights, experts), rel=1e-6, abs=1e-7)


class Mixture(nn.Module):
    """By hand: a linear gate, a list of experts, the two of the largest logits."""

    top_k = 2

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(8)
        self.gate = nn.Linear(8, 5)
        self.experts = nn.ModuleList(nn.Linear(8, 8) for _ in range(5))

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(x)
        weights, chosen = self.gate(x).softmax(-1).topk(self.top_k, dim=-1)
        outputs = torch.stack([expert(x) for expert in self.experts], dim=-2)
        picked = outputs.gather(-2, chosen.unsqueeze(-1).expand(*chosen.shape, 8))
        return (picked * weights.unsqueeze(-1)).sum(-2)


def test_a_hand_written_gate_chooses_its_largest_logits() -> None:
    torch.manual_seed(0)
    model, x = nn.Sequential(Mixture()), torch.randn(3, 7, 8)
    found = measured(Experts, model, lambda m: m(x[:2]), lambda m: m(x[2:]))
    chosen = model[0].gate(model[0].norm(x)).topk(2, dim=-1).indices.flatten(0, 1)
    assert of(found, "0.gate") == pytest.approx(counted(chosen, torch.ones(21), 5), rel=1e-6, abs=1e-7)


class Told(nn.Module):
    """Experts that are told the choices, in whatever shape."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Parameter(torch.randn(5, 8, 8))

    def forward(self, x: Tensor, chosen: Any) -> Tensor:
        return x


class Telling(nn.Module):
    """Token ids -> vectors; `told` is what its experts are told of the choices, int64[N, 2]."""

    def __init__(self, told: Callable[[Tensor], Any]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.told, self.top_k = told, 2
        self.embedding, self.norm = nn.Embedding(61, 8), nn.LayerNorm(8)
        self.router, self.experts = nn.Linear(8, 5), Told()

    def chosen(self, ids: Tensor) -> Tensor:
        return self.router(self.norm(self.embedding(ids))).topk(2, dim=-1).indices.flatten(0, 1)

    def forward(self, ids: Tensor) -> Tensor:
        return self.experts(self.norm(self.embedding(ids)), self.told(self.chosen(ids)))


@pytest.mark.parametrize(
    ("told", "choose"),
    [
        (lambda chosen: chosen.flatten(), lambda chosen: chosen),
        (lambda chosen: chosen.unflatten(0, (2, 14)).int(), lambda chosen: chosen),
        (lambda chosen: chosen[:, 0], lambda chosen: chosen[:, :1]),
        (lambda chosen: chosen[:, 0].unflatten(0, (2, 14)), lambda chosen: chosen[:, :1]),
        (lambda chosen: (torch.zeros(5).long(), chosen), lambda chosen: chosen),
        (lambda chosen: chosen.where(chosen < 3, -1), lambda chosen: chosen.where(chosen < 3, -1)),
        (lambda chosen: chosen.where(chosen < 3, 99), lambda chosen: chosen.where(chosen < 3, -1)),
    ],
    ids=["flat", "rows", "top 1", "top 1 in rows", "behind counts", "dropped", "no such expert"],
)
def test_choices_are_read_in_every_shape_that_has_as_many_for_each_token(
    told: Callable[[Tensor], Any], choose: Choose
) -> None:
    model = Telling(told)
    found = measured(Experts, model, lambda m: m(IDS))
    assert of(found, "router") == pytest.approx(counted(choose(model.chosen(IDS)), torch.ones(28), 5), rel=1e-6)


@pytest.mark.parametrize("told", [lambda chosen: chosen.flatten().bincount(minlength=5), lambda chosen: "none"])
def test_choices_that_are_not_found_are_told_once_and_cost_no_other_router(
    told: Callable[[Tensor], Any], caplog: pytest.LogCaptureFixture
) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(Telling(told), Mixture())
    tap = Experts(parts_of(model))
    for _ in range(2):
        tap.arm(Due(layers=True))
        model(IDS)
        found = read(tap)
    assert all(math.isnan(value) for value in of(found, "0.router"))
    assert all(math.isfinite(value) for value in of(found, "1.gate"))
    assert [r.getMessage() for r in caplog.records] == ["stabmon: which experts are chosen is not seen in 0.router"]


def test_a_model_without_experts_has_no_columns() -> None:
    assert measured(Experts, nn.Sequential(nn.LayerNorm(4)), lambda m: m(torch.randn(2, 4))) == {}


def test_what_a_load_says() -> None:
    assert load(torch.tensor([4.0, 4, 4, 4])).tolist() == [1, 1, 0]
    assert load(torch.tensor([8.0, 0, 0, 0])).tolist() == [4, 0, 0.75]
    assert load(torch.zeros(4)).isnan().all()


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
def test_a_compiled_mixture_counts_the_same_without_a_break() -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)
    model, x = nn.Sequential(Mixture()), torch.randn(3, 7, 8)
    eager = measured(Experts, model, lambda m: m(x))
    parts = parts_of(model)
    parts.norm_tap.detach()  # what it adds to a graph takes most of the time
    tap = Experts(parts)
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    for _ in range(2):
        tap.arm(Due(layers=True))
        compiled(x)
        assert read(tap) == eager
    model.eval()
    tap.arm(Due(layers=True))
    compiled(x)
    assert all(value != value for value in read(tap).values())
