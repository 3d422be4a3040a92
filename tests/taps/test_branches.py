"""Branches and trunks against hooks that are placed by hand, family by family."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
import transformers as tf
from torch import Tensor, nn

from stabmon.settings import Settings
from stabmon.taps import Due
from stabmon.taps.branches import Branches
from stabmon.taps.parts import examine

SIZE: dict[str, Any] = {
    "vocab_size": 61, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64,
    "bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0,
}  # fmt: skip
OPT = {k: v for k, v in SIZE.items() if k != "intermediate_size"} | {"ffn_dim": 64, "word_embed_proj_dim": 32}
T5 = {"vocab_size": 61, "d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4}
GPT2 = {"vocab_size": 61, "n_embd": 32, "n_layer": 2, "n_head": 4, "bos_token_id": 0, "eos_token_id": 0}
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
        return [
            float(f.square().mean()),
            float(x.square().mean()),
            float(cosine),
            float((f.abs() < 2**-25 * x.abs()).double().mean()),
        ]


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
        assert got == pytest.approx(by_hand.expected(trunk, branch, factor, counts), rel=2e-5, abs=1e-6)
    layers = {s.layer for _, s in tap.columns()}
    assert layers == set(range(len(tap._parts.blocks)))
