"""Model families, tiny and with random weights, and what stabmon is to find in each; docs/models.md shows the same.

Norms and blocks are counted by hand against each architecture.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import transformers as hf
from torch import Tensor, nn

from tests import timm_models

TOKENS = (2, 12)
SIZE = {"vocab_size": 64, "hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 32}
SHORT = {"max_position_embeddings": 32}
GROUPED = {"num_key_value_heads": 1, "head_dim": 8}


def ids() -> dict[str, Tensor]:
    return {"input_ids": torch.randint(1, 64, TOKENS)}


def two_sequences() -> dict[str, Tensor]:
    return {**ids(), "labels": torch.randint(1, 64, TOKENS)}


def image(size: int = 32) -> dict[str, Tensor]:
    return {"pixel_values": torch.randn(2, 3, size, size)}


def plain_image() -> dict[str, Tensor]:
    return {"x": torch.randn(2, 3, 32, 32)}


@dataclass(frozen=True)
class Family:
    """What is found: placement -> number of norms; `blocks` of them repeat."""

    make: Callable[[], nn.Module]
    inputs: Callable[[], dict[str, Tensor]]
    blocks: int
    placed: Mapping[str, int]

    @property
    def norms(self) -> int:
        return sum(self.placed.values())


def _hf(model: str, config: str, **settings: Any) -> Callable[[], nn.Module]:
    return lambda: getattr(hf, model)(getattr(hf, config)(**settings))


def _causal(name: str, **settings: Any) -> Callable[[], nn.Module]:
    return _hf(f"{name}ForCausalLM", f"{name}Config", **{**SIZE, **settings})


class Encoder(nn.Module):
    def __init__(self, norm_first: bool) -> None:
        super().__init__()
        self.embedding = nn.Embedding(64, 16)
        layer = nn.TransformerEncoderLayer(16, 2, 32, norm_first=norm_first, batch_first=True)
        final = nn.LayerNorm(16) if norm_first else None
        self.encoder = nn.TransformerEncoder(layer, 3, final, enable_nested_tensor=False)
        self.head = nn.Linear(16, 64)

    def forward(self, input_ids: Tensor) -> Tensor:
        logits: Tensor = self.head(self.encoder(self.embedding(input_ids)))
        return logits


def _opt(before: bool) -> Callable[[], nn.Module]:
    size = {"vocab_size": 64, "hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 2, "ffn_dim": 32}
    return _hf("OPTForCausalLM", "OPTConfig", **size, word_embed_proj_dim=16, do_layer_norm_before=before)


def _timm(name: str, **settings: Any) -> Callable[[], nn.Module]:
    return partial(timm_models.create, name, **settings)


GPT2 = {"vocab_size": 64, "n_positions": 32, "n_embd": 16, "n_layer": 3, "n_head": 2}
T5 = {"vocab_size": 64, "d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 2, "num_heads": 2}
VIT = {"hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 32, "image_size": 32}
SWIN = {"image_size": 32, "patch_size": 2, "embed_dim": 8, "depths": [2, 2], "num_heads": [2, 2], "window_size": 4}
BERT_LIKE = {**SIZE, "pad_token_id": 0}

FAMILIES: dict[str, Family] = {
    "GPT-2": Family(_hf("GPT2LMHeadModel", "GPT2Config", **GPT2), ids, 3, {"pre": 6, "final": 1}),
    "GPT-J": Family(_hf("GPTJForCausalLM", "GPTJConfig", **GPT2, rotary_dim=4), ids, 3, {"parallel": 3, "final": 1}),
    "GPT-NeoX": Family(_causal("GPTNeoX", **SHORT), ids, 3, {"parallel": 6, "final": 1}),
    "GPT-NeoX, sequential": Family(
        _causal("GPTNeoX", **SHORT, use_parallel_residual=False), ids, 3, {"pre": 6, "final": 1}
    ),
    "OPT": Family(_opt(True), ids, 3, {"pre": 6, "final": 1}),
    "OPT-350m": Family(_opt(False), ids, 3, {"post": 6}),
    "Llama": Family(_causal("Llama", **SHORT), ids, 3, {"pre": 6, "final": 1}),
    "Mistral": Family(_causal("Mistral", **SHORT, **GROUPED), ids, 3, {"pre": 6, "final": 1}),
    "Mixtral": Family(_causal("Mixtral", **SHORT, **GROUPED, num_local_experts=4), ids, 3, {"pre": 6, "final": 1}),
    "Qwen2": Family(_causal("Qwen2", **SHORT, num_key_value_heads=1), ids, 3, {"pre": 6, "final": 1}),
    "Qwen3": Family(_causal("Qwen3", **SHORT, **GROUPED), ids, 3, {"pre": 6, "inner": 6, "final": 1}),
    "DeepSeek-V3": Family(
        _causal(
            "DeepseekV3",
            **SHORT,
            num_key_value_heads=2,
            moe_intermediate_size=16,
            n_routed_experts=4,
            n_group=2,
            topk_group=1,
            num_experts_per_tok=2,
            first_k_dense_replace=1,
            kv_lora_rank=8,
            q_lora_rank=8,
            qk_rope_head_dim=8,
            qk_nope_head_dim=8,
            v_head_dim=8,
        ),
        ids,
        3,
        {"pre": 6, "inner": 6, "final": 1},
    ),
    "Gemma": Family(_causal("Gemma", **SHORT, **GROUPED), ids, 3, {"pre": 6, "final": 1}),
    "Gemma 2": Family(_causal("Gemma2", **SHORT, **GROUPED), ids, 3, {"sandwich": 12, "final": 1}),
    "Gemma 3": Family(
        _hf("Gemma3ForCausalLM", "Gemma3TextConfig", **SIZE, **SHORT, **GROUPED),
        ids,
        3,
        {"sandwich": 12, "inner": 6, "final": 1},
    ),
    "OLMo": Family(_causal("Olmo", **SHORT, pad_token_id=0), ids, 3, {"pre": 6, "final": 1}),
    "OLMo 2": Family(_causal("Olmo2", **SHORT, pad_token_id=0), ids, 3, {"res_post": 6, "inner": 6, "final": 1}),
    "Phi": Family(_causal("Phi", **SHORT), ids, 3, {"parallel": 3, "final": 1}),
    "Falcon": Family(
        _hf("FalconForCausalLM", "FalconConfig", **{k: v for k, v in SIZE.items() if k != "intermediate_size"}),
        ids,
        3,
        {"parallel": 3, "final": 1},
    ),
    "Cohere": Family(
        _causal("Cohere", **SHORT, num_key_value_heads=1, use_qk_norm=True, pad_token_id=0),
        ids,
        3,
        {"parallel": 3, "inner": 6, "final": 1},
    ),
    "BERT": Family(
        _hf("BertForMaskedLM", "BertConfig", **SIZE, **SHORT), ids, 3, {"embedding": 1, "post": 6, "final": 1}
    ),
    "RoBERTa": Family(
        _hf("RobertaForMaskedLM", "RobertaConfig", **BERT_LIKE, **SHORT),
        ids,
        3,
        {"embedding": 1, "post": 6, "final": 1},
    ),
    "DeBERTa": Family(
        _hf("DebertaForMaskedLM", "DebertaConfig", **BERT_LIKE, **SHORT),
        ids,
        3,
        {"embedding": 1, "post": 6, "final": 1},
    ),
    "T5": Family(
        _hf("T5ForConditionalGeneration", "T5Config", **T5, decoder_start_token_id=0),
        two_sequences,
        4,
        {"pre": 10, "final": 2},
    ),
    "BART": Family(
        _hf(
            "BartForConditionalGeneration",
            "BartConfig",
            vocab_size=64,
            d_model=16,
            encoder_layers=2,
            decoder_layers=2,
            encoder_attention_heads=2,
            decoder_attention_heads=2,
            encoder_ffn_dim=32,
            decoder_ffn_dim=32,
            max_position_embeddings=32,
            decoder_start_token_id=2,
            pad_token_id=1,
            forced_eos_token_id=None,
        ),
        two_sequences,
        4,
        {"embedding": 2, "post": 10},
    ),
    "ViT": Family(_hf("ViTForImageClassification", "ViTConfig", **VIT, patch_size=8), image, 3, {"pre": 6, "final": 1}),
    "Swin": Family(
        _hf("SwinForImageClassification", "SwinConfig", **SWIN),
        image,
        4,
        {"pre": 8, "embedding": 2, "final": 1},
    ),
    "ConvNeXt": Family(
        _hf("ConvNextForImageClassification", "ConvNextConfig", depths=[1, 1, 2, 1], hidden_sizes=[4, 8, 12, 16]),
        partial(image, 64),
        5,
        {"inner": 5, "embedding": 4, "final": 1},
    ),
    "ViT of timm": Family(
        _timm("vit_tiny_patch16_224", img_size=32, patch_size=8, depth=3, embed_dim=16, num_heads=2, num_classes=5),
        plain_image,
        3,
        {"pre": 6, "final": 1},
    ),
    "Swin of timm": Family(
        _timm(
            "swin_tiny_patch4_window7_224",
            img_size=32,
            patch_size=2,
            window_size=4,
            depths=(2, 2),
            embed_dim=8,
            num_heads=(2, 2),
            num_classes=5,
        ),
        plain_image,
        4,
        {"pre": 8, "embedding": 2, "final": 1},
    ),
    "ConvNeXt of timm": Family(
        _timm("convnext_atto", depths=(1, 1, 2, 1), dims=(4, 8, 12, 16), num_classes=5),
        plain_image,
        5,
        {"inner": 5, "embedding": 4, "final": 1},
    ),
    "ResNet of timm": Family(
        _timm("resnet18", num_classes=5),
        plain_image,
        8,
        {"inner": 8, "res_post": 11, "embedding": 1},
    ),
    "torch.nn.TransformerEncoder, norm_first": Family(partial(Encoder, True), ids, 3, {"pre": 6, "final": 1}),
    "torch.nn.TransformerEncoder": Family(partial(Encoder, False), ids, 3, {"post": 6}),
}


def table() -> str:
    """The table of docs/models.md."""
    rows = ["| family | blocks | norms | where they sit |", "| --- | --- | --- | --- |"]
    for name, family in FAMILIES.items():
        where = ", ".join(f"{number} {placement}" for placement, number in family.placed.items())
        rows.append(f"| {name} | {family.blocks} | {family.norms} | {where} |")
    return "\n".join(rows)
