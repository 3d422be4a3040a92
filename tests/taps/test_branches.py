"""Branches and trunks against hooks that are placed by hand, family by family."""

from __future__ import annotations

import logging
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
import transformers as tf
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from stabmon.settings import Settings
from stabmon.taps import Due
from stabmon.taps.branches.tap import Branches, Held, measure
from stabmon.taps.parts import examine

SIZE: dict[str, Any] = {
    "vocab_size": 61, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64,
    "bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0,
}  # fmt: skip
OPT = {k: v for k, v in SIZE.items() if k != "intermediate_size"} | {"ffn_dim": 64, "word_embed_proj_dim": 32}
T5 = {"vocab_size": 61, "d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4}
GPT2: dict[str, Any] = {"vocab_size": 61, "n_embd": 32, "n_layer": 2, "n_head": 4, "bos_token_id": 0, "eos_token_id": 0}
IMAGE = {k: v for k, v in SIZE.items() if k not in ("vocab_size", "bos_token_id", "eos_token_id", "pad_token_id")}


@dataclass(frozen=True)
class Family:
    """One block of a model: (sub-layer, trunk, branch, factor), points as `module in` or `module out`.

    A branch of two points is the first without the second: total - trunk.
    """

    make: Callable[[], nn.Module]
    block: str
    sums: tuple[tuple[str, str, str, float], ...]


PRE = ((".self_attn", " in", ".self_attn.o_proj out", 1.0), (".mlp", ".post_attention_layernorm in", ".mlp out", 1.0))
TORCH = {"d_model": 32, "nhead": 4, "dim_feedforward": 64, "batch_first": True}


def encoder(norm_first: bool) -> nn.Module:
    layer = nn.TransformerEncoderLayer(**TORCH, norm_first=norm_first)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)


FAMILIES = {
    "gpt2": Family(
        lambda: tf.GPT2LMHeadModel(tf.GPT2Config(**GPT2)),
        "transformer.h.1",
        ((".attn", " in", ".attn.resid_dropout out", 1.0), (".mlp", ".ln_2 in", ".mlp out", 1.0)),
    ),
    "llama": Family(lambda: tf.LlamaForCausalLM(tf.LlamaConfig(**SIZE)), "model.layers.1", PRE),
    "granite": Family(
        lambda: tf.GraniteForCausalLM(tf.GraniteConfig(**SIZE, residual_multiplier=0.3)),
        "model.layers.0",
        tuple((*row[:3], 0.3) for row in PRE),
    ),
    "mixtral": Family(
        lambda: tf.MixtralForCausalLM(tf.MixtralConfig(**SIZE, num_key_value_heads=2, num_local_experts=4)),
        "model.layers.1",
        PRE,
    ),
    "bert": Family(
        lambda: tf.BertForMaskedLM(tf.BertConfig(**SIZE)),
        "bert.encoder.layer.0",
        (
            (".attention", " in", ".attention.output.dropout out", 1.0),
            (".output", ".attention.output.LayerNorm out", ".output.dropout out", 1.0),
        ),
    ),
    "gemma2": Family(
        lambda: tf.Gemma2ForCausalLM(tf.Gemma2Config(**SIZE, num_key_value_heads=2, head_dim=8)),
        "model.layers.1",
        (
            (".self_attn", " in", ".post_attention_layernorm out", 1.0),
            (".mlp", ".pre_feedforward_layernorm in", ".post_feedforward_layernorm out", 1.0),
        ),
    ),
    "olmo2": Family(
        lambda: tf.Olmo2ForCausalLM(tf.Olmo2Config(**SIZE)),
        "model.layers.1",
        (
            (".self_attn", " in", ".post_attention_layernorm out", 1.0),
            (".mlp", ".mlp in", ".post_feedforward_layernorm out", 1.0),
        ),
    ),
    "gpt_neox": Family(
        lambda: tf.GPTNeoXForCausalLM(tf.GPTNeoXConfig(**SIZE)),
        "gpt_neox.layers.1",
        ((".attention", " in", ".attention.dense out", 1.0), (".mlp", " in", ".mlp out", 1.0)),
    ),
    "phi": Family(
        lambda: tf.PhiForCausalLM(tf.PhiConfig(**SIZE)),
        "model.layers.0",
        ((".self_attn", " in", ".self_attn.dense out", 1.0), (".mlp", " in", ".mlp out", 1.0)),
    ),
    "opt": Family(
        lambda: tf.OPTForCausalLM(tf.OPTConfig(**OPT)),
        "model.decoder.layers.1",
        (
            (".self_attn", " in", ".final_layer_norm in| in", 1.0),
            (".fc2", ".final_layer_norm in", " out|.final_layer_norm in", 1.0),
        ),
    ),
    "opt_post": Family(
        lambda: tf.OPTForCausalLM(tf.OPTConfig(**OPT, do_layer_norm_before=False)),
        "model.decoder.layers.1",
        (
            (".self_attn", " in", ".self_attn_layer_norm in| in", 1.0),
            (".fc2", ".self_attn_layer_norm out", ".final_layer_norm in|.self_attn_layer_norm out", 1.0),
        ),
    ),
    "vit": Family(
        lambda: tf.ViTForImageClassification(tf.ViTConfig(**IMAGE, image_size=16, patch_size=4)),
        "vit.layers.1",
        ((".attention", " in", ".attention.o_proj out", 1.0), (".mlp", ".layernorm_after in", ".mlp out", 1.0)),
    ),
    "t5": Family(
        lambda: tf.T5ForConditionalGeneration(tf.T5Config(**T5, decoder_start_token_id=0)),
        "decoder.block.1",
        (
            (".layer.0", " in", ".layer.0.dropout out", 1.0),
            (".layer.1", ".layer.0 out", ".layer.1.dropout out", 1.0),
            (".layer.2", ".layer.1 out", ".layer.2.dropout out", 1.0),
        ),
    ),
    "encoder_pre": Family(
        lambda: encoder(norm_first=True),
        "layers.1",
        ((".self_attn", " in", ".dropout1 out", 1.0), (".linear2", ".norm2 in", ".dropout2 out", 1.0)),
    ),
    "encoder_post": Family(
        lambda: encoder(norm_first=False),
        "layers.0",
        ((".self_attn", " in", ".dropout1 out", 1.0), (".linear2", ".norm1 out", ".dropout2 out", 1.0)),
    ),
}  # fmt: skip


class ByHand:
    """Sums over a step's calls, in float64, of what hooks at the given points see."""

    def __init__(self, model: nn.Module, family: Family) -> None:
        self.seen: dict[str, list[Tensor]] = {}
        self._modules = dict(model.named_modules())
        self.handles: list[Any] = []
        wanted = {p for _, trunk, branch, _ in family.sums for p in (trunk, *branch.split("|"))}
        for point in wanted:
            name, _, side = point.rpartition(" ")
            module, seen = self._modules[family.block + name], self.seen.setdefault(point, [])
            self.handles.append(
                module.register_forward_pre_hook(
                    lambda _, args, kwargs, seen=seen: seen.append(flat((*args, *kwargs.values()))), with_kwargs=True
                )
                if side == "in"
                else module.register_forward_hook(lambda _, args, out, seen=seen: seen.append(flat(out)))
            )

    def expected(self, trunk: str, branch: str, factor: float, counts: list[Tensor]) -> list[float]:
        x = torch.cat(self.seen[trunk])
        first, *rest = (torch.cat(self.seen[p]) for p in branch.split("|"))
        f = factor * (first - sum(rest))
        x, f = (v[torch.cat(counts)] for v in (x, f))
        cosine = torch.nn.functional.cosine_similarity(x, f, dim=-1).mean()
        swamped = ((f != 0) & (f.abs() < 2**-25 * x.abs())).double().mean()
        return [float(f.square().mean()), float(x.square().mean()), float(cosine), float("nan" if rest else swamped)]


def flat(value: Any) -> Tensor:
    found = value if isinstance(value, Tensor) else next(v for v in value if isinstance(v, Tensor))
    return found.detach().double().reshape(-1, found.shape[-1])


def call(model: nn.Module, name: str, seed: int) -> tuple[Tensor, Tensor]:
    """A loss, and which tokens count."""
    generator = torch.Generator().manual_seed(seed)
    if name == "vit":
        return model(torch.randn(2, 3, 16, 16, generator=generator)).logits.sum(), torch.ones(34, dtype=torch.bool)
    if name.startswith("encoder"):
        return model(torch.randn(2, 12, 32, generator=generator)).square().sum(), torch.ones(24, dtype=torch.bool)
    ids = torch.randint(1, 61, (2, 12), generator=generator)
    extra = {"labels": ids} if name == "t5" else {}
    counts = (torch.arange(12) > 0).repeat(2)
    return model(input_ids=ids, **extra).logits.square().sum(), counts


def attach(model: nn.Module) -> Branches:
    tap = Branches(examine(model, [torch.optim.SGD(model.parameters(), lr=0.1)], Settings(level="standard")))
    tap.arm(Due(layers=True))
    return tap


def read(tap: Branches) -> dict[tuple[str, str], float]:
    return {(name, site.name): float(v) for (name, site), v in zip(tap.columns(), tap.read(), strict=True)}


@pytest.mark.parametrize("name", FAMILIES)
def test_a_family_s_branches_and_trunks_are_those_seen_by_hand(name: str) -> None:
    torch.manual_seed(0)
    family = FAMILIES[name]
    model = family.make().train()
    tap = attach(model)
    call(model, name, 0)[0].backward()
    first = read(tap)
    assert len(first) >= 4 * len(family.sums)
    assert all(np.isnan(value) for value in first.values()), "the first step is looked through, not read"
    tap.arm(Due(layers=True))
    by_hand = ByHand(model, family)
    counts = []
    for seed in (1, 2):
        loss, counted = call(model, name, seed)
        loss.backward()
        counts.append(counted)
    found = read(tap)
    for sublayer, trunk, branch, factor in family.sums:
        got = [found[s, family.block + sublayer] for s in ("branch_msq", "trunk_msq", "branch_cosine", "swamped_share")]
        assert got == pytest.approx(by_hand.expected(trunk, branch, factor, counts), rel=2e-5, abs=1e-6, nan_ok=True)
    layers = {s.layer for _, s in tap.columns()}
    assert layers == set(range(len(tap._parts.blocks)))


class Net(nn.Module):
    """Two blocks whose sums are made by their caller, under checkpointing if asked to."""

    def __init__(self, recompute: bool | None = None, scale: float = 1.0) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.LayerNorm(16), nn.Linear(16, 16)) for _ in range(2))
        self.final = nn.LayerNorm(16)
        self.recompute, self.scale = recompute, scale

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            f = block(x) if self.recompute is None else checkpoint(block, x, use_reentrant=self.recompute)
            x = x + self.scale * f
        return self.final(x)


def run(model: nn.Module, x: Tensor) -> dict[tuple[str, str], float]:
    """What the second step reads of one call."""
    tap = attach(model)
    model(x.clone()).square().sum().backward()
    read(tap)
    tap.arm(Due(layers=True))
    model(x.clone()).square().sum().backward()
    return read(tap)


@pytest.mark.parametrize("recompute", [True, False])
def test_a_forward_that_checkpointing_repeats_counts_once(recompute: bool) -> None:
    torch.manual_seed(0)
    model, x = Net(), torch.randn(3, 5, 16, requires_grad=True)
    expected = run(model, x)
    model.recompute = recompute
    assert run(model, x) == expected
    assert {site for _, site in expected} == {"blocks.0", "blocks.1"}


def test_a_scaled_branch_is_told_as_it_was_added() -> None:
    torch.manual_seed(0)
    model, x = Net(scale=0.25), torch.randn(3, 5, 16)
    found = run(model, x)
    f = 0.25 * model.blocks[0](x).detach()
    assert found["branch_msq", "blocks.0"] == pytest.approx(float(f.square().mean()), rel=1e-5)
    assert found["trunk_msq", "blocks.0"] == pytest.approx(float(x.square().mean()), rel=1e-5)


def test_a_stream_that_the_sum_was_written_into_is_known_to_be_gone() -> None:
    held, x = Held(), torch.ones(2, 4)
    held.take(x)
    assert not held.overwritten(x)
    x += 1
    assert held.overwritten(x)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_what_is_called_swamped_leaves_no_trace_in_the_sum_and_twice_as_much_may(dtype: torch.dtype) -> None:
    eps = torch.finfo(dtype).eps
    x = (1 + torch.rand(400, 64)).to(dtype)
    f = (x * torch.rand(400, 64) * eps).to(dtype)
    found, _ = measure(x.float(), f.float(), eps)
    below = (f != 0) & (f.float() < eps / 4 * x.float())
    assert float(found[3]) == pytest.approx(float(below.float().mean()))
    assert bool(((x + f) == x)[below].all())
    assert bool(((x + 2 * f) != x)[below].any())


def test_what_dropout_has_set_to_0_is_not_swamped() -> None:
    x, f = torch.ones(4, 8), torch.zeros(4, 8)
    f[:, 0] = 1e-9
    assert float(measure(x, f, 2**-23)[0][3]) == 1 / 8


@pytest.mark.parametrize("scale", [1e-2, 1e-5])
def test_a_small_layer_scale_in_bfloat16_is_read_as_it_was_added(scale: float) -> None:
    class Scale(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x * scale

    torch.manual_seed(0)
    model = Net().bfloat16()
    for block in model.blocks:
        block.append(Scale())  # type: ignore[operator]
    x = torch.randn(8, 50, 16).bfloat16()
    found = run(model, x)
    f = model.blocks[0](x).detach().float()
    if scale == 1e-2:
        assert found["branch_msq", "blocks.0"] == pytest.approx(float(f.square().mean()), rel=1e-5)
        swamped = (f != 0) & (f.abs() < 2**-9 * x.float().abs())
        assert found["swamped_share", "blocks.0"] == pytest.approx(float(swamped.float().mean()))
    else:
        assert found == {}, "all of it is swamped in the first step: the sum is the stream"


@pytest.mark.parametrize("scale", [1e-9, 3e-8])
def test_a_branch_that_is_less_than_the_sum_s_rounding_is_not_seen(scale: float) -> None:
    torch.manual_seed(0)
    assert run(Net(scale=scale), torch.randn(3, 5, 16)) == {}


def test_blocks_in_which_nothing_is_seen_are_named_once(caplog: pytest.LogCaptureFixture) -> None:
    class Gated(Net):
        def forward(self, x: Tensor) -> Tensor:
            for block in self.blocks:
                x = x + block(x) * torch.randn(16)
            return self.final(x)

    torch.manual_seed(0)
    with caplog.at_level(logging.WARNING, "stabmon"):
        assert run(Gated(), torch.randn(3, 5, 16)) == {}
    assert [r.getMessage() for r in caplog.records] == [
        "stabmon: what is added to the residual stream was not seen in blocks.0, blocks.1"
    ]


def test_padding_and_the_first_token_do_not_count() -> None:
    torch.manual_seed(0)
    model = FAMILIES["bert"].make().eval()
    ids, mask = torch.randint(1, 61, (2, 12)), torch.ones(2, 12, dtype=torch.long)
    mask[1, 8:] = 0
    tap = attach(model)
    for _ in range(2):
        tap.arm(Due(layers=True))
        model(input_ids=ids, attention_mask=mask).logits.sum().backward()
        found = read(tap)
    by_hand = ByHand(model, FAMILIES["bert"])
    model(input_ids=ids, attention_mask=mask)
    counts = (mask.flatten() > 0) & (torch.arange(24) % 12 > 0)
    expected = by_hand.expected(" in", ".attention.output.dropout out", 1.0, [counts])
    assert found["branch_msq", "bert.encoder.layer.0.attention"] == pytest.approx(expected[0], rel=1e-5)


def test_a_compiled_model_reads_the_same_without_a_further_break() -> None:
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    torch.manual_seed(0)
    model, x, graphs = Net(), torch.randn(3, 5, 16), []

    def backend(module: torch.fx.GraphModule, _: list[Tensor]) -> Callable[..., Any]:
        graphs.append(module)
        return module.forward

    expected = run(deepcopy(model), x)
    tap = attach(model)
    compiled = torch.compile(model, backend=backend)
    for due in (True, True, False, True):
        tap.arm(Due(layers=due))
        compiled(x).square().sum().backward()
        found = read(tap)
    assert found == pytest.approx(expected, rel=1e-6)
    assert len(graphs) == 2, "one that reads, one that does not"
    assert not torch._dynamo.utils.counters["graph_break"]


def test_no_hook_and_no_tensor_is_left_behind() -> None:
    model = Net()
    tap = attach(model)
    kept = {name: (len(m._forward_hooks), len(m._forward_pre_hooks)) for name, m in Net().named_modules()}
    model(torch.randn(3, 5, 16)).sum().backward()
    read(tap)
    tap.detach()
    tap._parts.forward.detach()
    tap._parts.norm_tap.detach()
    assert {name: (len(m._forward_hooks), len(m._forward_pre_hooks)) for name, m in model.named_modules()} == kept
    assert all(held.trunk is None for held in tap._held)
