"""Models of transformers, from tiny configurations with random weights."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import transformers
from torch import nn

from stabmon.bench.exact.families import Batch, Family, Kind
from stabmon.bench.exact.families.batches import SIDE, pictures, sentences, translations, words
from stabmon.bench.exact.networks import CLASSES, VOCABULARY

_SIZE = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
_QUIET = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "classifier_dropout": 0.0}
_LLAMA = {**_SIZE, "vocab_size": VOCABULARY, "num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 64}
_SHIFTED = words(aligned=False)


_LAYERS = [r"model\.layers\.\d+"]
_SWAMPED = (
    "in the first step, which is looked through for sums, its layer scale leaves less of a branch than a rounding"
)
_PRE = {
    "self_attn": ("in:input_layernorm", "out:self_attn"),
    "mlp": ("in:post_attention_layernorm", "out:mlp"),
}


def _model(model: str, config: str, **settings: Any) -> nn.Module:
    """Eager attention: what it multiplies can be seen."""
    torch.manual_seed(0)
    chosen = getattr(transformers, config)(**settings, attn_implementation="eager", pad_token_id=0, use_cache=False)
    made: nn.Module = getattr(transformers, model)(chosen)
    return made


def _family(
    name: str,
    model: str,
    config: str,
    batch: Callable[[torch.Generator, int, bool], Batch],
    norms: dict[str, Kind],
    blocks: list[str],
    sums: dict[str, tuple[str, str]],
    **settings: Any,
) -> Family:
    make = partial(_model, model, config, **settings)
    counts = _takes_count(getattr(transformers, model))
    return Family(
        name,
        make,
        batch,
        norms,
        blocks,
        sums,
        _SWAMPED if not sums else "",
        padded=batch is not pictures,
        shifts=batch is _SHIFTED,
        counts=counts,
    )


def _takes_count(model: Any) -> bool:
    """Whether the Trainer leaves it to the model to divide its loss by the number of targets."""
    kinds = {parameter.kind for parameter in inspect.signature(model.forward).parameters.values()}
    return bool(getattr(model, "accepts_loss_kwargs", inspect.Parameter.VAR_KEYWORD in kinds))


HUGGINGFACE = [
    _family(
        "GPT-2", "GPT2LMHeadModel", "GPT2Config", _SHIFTED, {"LayerNorm": "centred"}, [r"transformer\.h\.\d+"],
        {"attn": ("in:ln_1", "out:attn"), "mlp": ("in:ln_2", "out:mlp")},
        n_embd=32, n_layer=2, n_head=4, vocab_size=VOCABULARY, n_positions=64, bos_token_id=1, eos_token_id=1,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
    ),
    _family(
        "Llama", "LlamaForCausalLM", "LlamaConfig", _SHIFTED, {"LlamaRMSNorm": "raw"}, _LAYERS, _PRE, **_LLAMA
    ),
    _family(
        "Qwen3", "Qwen3ForCausalLM", "Qwen3Config", _SHIFTED, {"Qwen3RMSNorm": "raw"}, _LAYERS, _PRE, **_LLAMA
    ),
    _family(
        "Gemma 2", "Gemma2ForCausalLM", "Gemma2Config", _SHIFTED, {"Gemma2RMSNorm": "raw, 1 + weight"}, _LAYERS,
        {
            "self_attn": ("in:input_layernorm", "out:post_attention_layernorm"),
            "mlp": ("in:pre_feedforward_layernorm", "out:post_feedforward_layernorm"),
        },
        sliding_window=8, **_LLAMA,
    ),
    _family(
        "Mixtral", "MixtralForCausalLM", "MixtralConfig", _SHIFTED, {"MixtralRMSNorm": "raw"}, _LAYERS, _PRE,
        num_local_experts=4, experts_implementation="eager", **_LLAMA,
    ),
    _family(
        "BERT, classes", "BertForSequenceClassification", "BertConfig", sentences, {"LayerNorm": "centred"},
        [r"bert\.encoder\.layer\.\d+"],
        {"attention": ("in:", "out:attention.output.dropout"), "output": ("in:intermediate", "out:output.dropout")},
        vocab_size=VOCABULARY, max_position_embeddings=64, num_labels=CLASSES, **_SIZE, **_QUIET,
    ),
    _family(
        "T5", "T5ForConditionalGeneration", "T5Config", translations, {"T5LayerNorm": "raw"},
        [r"encoder\.block\.\d+", r"decoder\.block\.\d+"],
        {f"layer.{i}": (f"in:layer.{i}.layer_norm", f"out:layer.{i}.dropout") for i in range(3)},
        vocab_size=VOCABULARY, d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4, dropout_rate=0.0,
        decoder_start_token_id=0,
    ),
    _family(
        "ViT", "ViTForImageClassification", "ViTConfig", pictures, {"LayerNorm": "centred"}, [r"vit\.layers\.\d+"],
        {"attention": ("in:layernorm_before", "out:attention"), "mlp": ("in:layernorm_after", "out:mlp")},
        image_size=SIDE, patch_size=4, num_labels=CLASSES, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
        **_SIZE,
    ),
    _family(
        "ConvNeXt", "ConvNextForImageClassification", "ConvNextConfig", pictures,
        {"LayerNorm": "centred", "ConvNextLayerNorm": "centred"}, [r"convnext\.encoder\.stages\.\d+\.layers\.\d+"],
        {},
        patch_size=2, num_stages=2, hidden_sizes=[16, 24], depths=[2, 1], image_size=SIDE, num_labels=CLASSES,
    ),
]  # fmt: skip
