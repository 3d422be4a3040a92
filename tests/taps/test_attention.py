"""Attention of whole models against a naive computation from their own queries and keys."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BloomConfig,
    BloomForCausalLM,
    Gemma2Config,
    Gemma2ForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    GptOssConfig,
    GptOssForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    PreTrainedModel,
    Qwen3Config,
    Qwen3ForCausalLM,
    T5Config,
    T5ForConditionalGeneration,
    ViTConfig,
    ViTForImageClassification,
)

from stabmon.taps.attention.tap import Attention
from tests.taps.attention_naive import Recorder, Values, measured, naive

IDS = torch.randint(2, 61, (2, 14), generator=torch.Generator().manual_seed(0))
PADDED = (torch.arange(14) < torch.tensor([[14], [9]])).long()
TEXT: dict[str, Any] = {"vocab_size": 61, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4}
TEXT |= {"intermediate_size": 24, "initializer_range": 0.4, "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 1}
GROUPED = TEXT | {"num_key_value_heads": 2, "head_dim": 8}
VIT = {k: v for k, v in TEXT.items() if not k.endswith("_id") and k != "vocab_size"}
VIT |= {"image_size": 16, "patch_size": 4}
PIXELS = torch.randn(2, 3, 16, 16, generator=torch.Generator().manual_seed(0))


def causal(model: nn.Module) -> Any:
    return model(input_ids=IDS, labels=IDS)


def padded(model: nn.Module) -> Any:
    return model(input_ids=IDS, attention_mask=PADDED, labels=IDS)


def seq2seq(model: nn.Module) -> Any:
    return model(input_ids=IDS, attention_mask=PADDED, labels=IDS[:, :7].contiguous())


def image(model: nn.Module) -> Any:
    return model(pixel_values=PIXELS)


def gpt2() -> PreTrainedModel:
    return GPT2LMHeadModel(
        GPT2Config(
            n_layer=2,
            n_head=2,
            n_embd=16,
            vocab_size=61,
            n_positions=32,
            initializer_range=0.4,
            bos_token_id=0,
            eos_token_id=1,
        )
    )


MODELS: dict[str, tuple[Callable[[], PreTrainedModel], Callable[[nn.Module], Any], Tensor | None]] = {
    "gpt2": (gpt2, causal, None),
    "llama, grouped heads": (lambda: LlamaForCausalLM(LlamaConfig(**GROUPED)), causal, None),
    "llama, padded": (lambda: LlamaForCausalLM(LlamaConfig(**GROUPED)), padded, PADDED),
    "qwen3, QK norms": (lambda: Qwen3ForCausalLM(Qwen3Config(**GROUPED)), causal, None),
    "mistral, window of 4": (
        lambda: MistralForCausalLM(MistralConfig(**GROUPED, sliding_window=4)),
        causal,
        None,
    ),
    "gemma2, capped at 3": (
        lambda: Gemma2ForCausalLM(
            Gemma2Config(**GROUPED, sliding_window=4, attn_logit_softcapping=3.0, query_pre_attn_scalar=2)
        ),
        causal,
        None,
    ),
    "bert, padded": (lambda: BertForMaskedLM(BertConfig(**TEXT)), padded, PADDED),
    "vit": (
        lambda: ViTForImageClassification(ViTConfig(**VIT)),
        image,
        None,
    ),
}


def seeded(make: Callable[[], PreTrainedModel], kernel: str) -> PreTrainedModel:
    torch.manual_seed(0)
    model = make().train()
    model.set_attn_implementation(kernel)
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    for config in (model.config, *(m.config for m in model.modules() if hasattr(m, "config"))):
        config.attention_dropout = 0.0
    return model


def of_layers(found: Values) -> dict[str, tuple[float, float, float]]:
    """Site -> [largest, entropy, lowest head's]."""
    names = dict.fromkeys(site for _, site in found)
    return {
        name: (
            found["attention_logit_max", name],
            found["attention_entropy", name],
            found["attention_entropy_min", name],
        )
        for name in names
    }


def check(found: Values, recorder: Recorder, reference: nn.Module, counted: Callable[[str], Tensor | None]) -> None:
    layers = of_layers(found)
    assert len(layers) == len(recorder.scores)
    for name, got in layers.items():
        (scores,) = recorder.scores[id(reference.get_submodule(name))]
        wanted = naive(scores, counted(name))
        assert wanted[1] < 0.97, "an even attention tells nothing"
        assert got == pytest.approx(wanted, rel=1e-5), name


KERNELS = [(name, kernel) for name in MODELS for kernel in ("sdpa", "eager")]
KERNELS.remove(("gemma2, capped at 3", "sdpa"))  # this kernel has no cap


@pytest.mark.parametrize(("name", "kernel"), KERNELS)
def test_every_layer_equals_a_naive_computation(name: str, kernel: str) -> None:
    make, call, counted = MODELS[name]
    with Recorder() as recorder:
        reference = seeded(make, "recorded")
        call(reference)
    found = measured(Attention, seeded(make, kernel), call)
    check(found, recorder, reference, lambda _: counted)
    if name.startswith("gemma2"):
        assert all(2.5 < largest <= 3 for largest, _, _ in of_layers(found).values())


@pytest.mark.parametrize("kernel", ["sdpa", "eager"])
def test_t5_has_encoder_decoder_and_cross_attention(kernel: str) -> None:
    def make() -> PreTrainedModel:
        sizes = {"d_model": 16, "d_kv": 8, "d_ff": 24, "num_layers": 2, "num_heads": 2, "vocab_size": 61}
        return T5ForConditionalGeneration(T5Config(**sizes, decoder_start_token_id=0, dropout_rate=0.0))

    with Recorder() as recorder:
        reference = seeded(make, "recorded")
        seq2seq(reference)
    found = measured(Attention, seeded(make, kernel), seq2seq)
    assert len(of_layers(found)) == 6
    check(found, recorder, reference, lambda name: PADDED if "encoder" in name else None)


def test_alibi_is_in_the_entropy() -> None:
    def make() -> PreTrainedModel:
        return BloomForCausalLM(
            BloomConfig(vocab_size=61, hidden_size=16, n_layer=2, n_head=4, initializer_range=0.4, hidden_dropout=0.0)
        )

    weights = causal_attentions(seeded(make, "eager"))
    layers = list(of_layers(measured(Attention, seeded(make, "eager"), causal)).values())
    assert len(layers) == len(weights) == 2
    for (_, entropy, lowest), wanted in zip(layers, weights, strict=True):
        assert (entropy, lowest) == pytest.approx(naive(wanted, None)[1:], rel=1e-5)


def causal_attentions(model: PreTrainedModel) -> list[Tensor]:
    """ln of the weights that the model returns, hidden ones -inf."""
    shown = torch.ones(14, 14).tril() > 0
    found = model(input_ids=IDS, output_attentions=True).attentions
    return [weights.detach().double().log().masked_fill(~shown, -torch.inf) for weights in found]


def test_gpt_oss_which_takes_the_largest_away_has_an_entropy_with_its_sink_and_no_largest() -> None:
    def make() -> PreTrainedModel:
        return GptOssForCausalLM(GptOssConfig(**GROUPED, num_local_experts=4, num_experts_per_tok=2))

    model = seeded(make, "eager")
    layers = of_layers(measured(Attention, model, causal))
    for (largest, entropy, _), weights in zip(layers.values(), causal_attentions(model), strict=True):
        p = weights.exp()
        sink = 1 - p.sum(-1, keepdim=True)
        row = torch.cat((p, sink), dim=-1)
        visible = torch.arange(1, 15) + 1
        wanted = -(row * row.clamp(min=1e-300).log()).sum(-1) / visible.log()
        assert largest != largest
        assert entropy == pytest.approx(float(wanted.mean()), rel=1e-4)
