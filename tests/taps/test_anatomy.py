from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from transformers import (
    BertConfig,
    BertForMaskedLM,
    GemmaConfig,
    GemmaForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    T5Config,
    T5ForConditionalGeneration,
)

from stabmon.taps.model.anatomy import find_blocks, find_norms, group_parameters, norm_sites


def gpt2() -> nn.Module:
    return GPT2LMHeadModel(GPT2Config(vocab_size=64, n_positions=16, n_embd=16, n_layer=3, n_head=2))


def bert() -> nn.Module:
    size = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    return BertForMaskedLM(BertConfig(vocab_size=64, **size))


def llama_size() -> dict[str, int]:
    return {
        "vocab_size": 64, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2,
        "num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 8,
    }  # fmt: skip


def sites_in_module_order(model: nn.Module) -> dict[str, tuple[int | None, str]]:
    norms = find_norms(model)
    sites = norm_sites([norm.name for norm in norms], find_blocks(model, norms))
    return {name: (site.layer, site.role) for name, site in sites.items()}


def test_gpt2_has_two_norms_a_block_and_a_final_one() -> None:
    found = sites_in_module_order(gpt2())
    assert len(found) == 7
    assert found["transformer.h.2.ln_1"] == (2, "ln_1")
    assert found["transformer.ln_f"] == (2, "final")


def test_bert_has_an_embedding_norm_and_norms_named_by_their_place() -> None:
    found = sites_in_module_order(bert())
    assert found["bert.embeddings.LayerNorm"] == (0, "embedding")
    assert found["bert.encoder.layer.1.attention.output.LayerNorm"] == (1, "attention_output_layer_norm")
    assert found["cls.predictions.transform.LayerNorm"] == (1, "final")


def test_torch_encoder_blocks_are_its_layers() -> None:
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    model = nn.Sequential(nn.TransformerEncoder(layer, 3, enable_nested_tensor=False), nn.Linear(16, 4))
    assert find_blocks(model, find_norms(model)) == ["0.layers.0", "0.layers.1", "0.layers.2"]


def test_t5_blocks_are_numbered_through_encoder_and_decoder() -> None:
    config = T5Config(vocab_size=64, d_model=16, d_kv=8, d_ff=32, num_layers=2, num_heads=2)
    found = sites_in_module_order(T5ForConditionalGeneration(config))
    assert found["encoder.block.1.layer.1.layer_norm"] == (1, "layer_1_layer_norm")
    assert found["decoder.block.0.layer.2.layer_norm"] == (2, "layer_2_layer_norm")
    assert all(not norm.centred for norm in find_norms(T5ForConditionalGeneration(config)))


def test_forward_order_counts_not_definition_order() -> None:
    sites = norm_sites(["blocks.1.norm", "blocks.0.norm", "head_norm"], ["blocks.0", "blocks.1"])
    assert [(site.layer, site.role) for site in sites.values()] == [(0, "norm"), (1, "norm"), (1, "final")]


def test_sites_of_one_layer_never_share_a_role() -> None:
    sites = norm_sites(["a.norm", "b.norm", "blocks.0.norm", "out.norm", "head.norm"], ["blocks.0"])
    assert len({(site.layer, site.role) for site in sites.values()}) == 5


@pytest.mark.parametrize(("family", "offset"), [("llama", 0.0), ("gemma", 1.0)])
def test_effective_gamma_is_found_whether_the_model_learns_gamma_or_gamma_minus_one(family: str, offset: float) -> None:
    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(**llama_size())) if family == "llama" else GemmaForCausalLM(
        GemmaConfig(**llama_size())
    )  # fmt: skip
    for norm in find_norms(model):
        with torch.no_grad():
            norm.module.weight.add_(0.3 * torch.randn_like(norm.module.weight))
        x = torch.randn(5, 16)
        y = norm.module(x)
        gamma = (y * x.square().mean(-1, keepdim=True).sqrt() / x).mean(0)
        torch.testing.assert_close(norm.gamma(), gamma, rtol=1e-4, atol=1e-4)
        assert (norm.centred, norm.offset) == (False, offset)


class Centred(nn.Module):
    """A hand-written layer norm with a bias."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.rand(16) + 0.5), nn.Parameter(torch.randn(16))
        self.eps = 1e-6

    def forward(self, x: Tensor) -> Tensor:
        centred = x - x.mean(-1, keepdim=True)
        return centred * torch.rsqrt(centred.square().mean(-1, keepdim=True) + self.eps) * self.weight + self.bias


def test_a_hand_written_layer_norm_is_seen_to_be_centred() -> None:
    (norm,) = find_norms(nn.Sequential(Centred()))
    assert (norm.centred, norm.offset, norm.eps) == (True, 0.0, 1e-6)


def test_a_model_without_norms_has_none_and_its_blocks_are_still_found() -> None:
    blocks = (nn.ModuleDict({"mlp": nn.Sequential(nn.Linear(4, 4), nn.ReLU())}) for _ in range(3))
    model = nn.Sequential(nn.Linear(4, 4), *blocks)
    assert find_norms(model) == []
    assert find_blocks(model, []) == ["1", "2", "3"]


def test_what_is_named_like_a_norm_and_does_not_normalise_is_none() -> None:
    class ResponseNorm(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight, self.eps = nn.Parameter(torch.ones(16)), 1e-6

        def forward(self, x: Tensor) -> Tensor:
            return x + self.weight * x * x.norm(dim=-1, keepdim=True)

    assert find_norms(nn.Sequential(ResponseNorm())) == []


def test_parameters_outside_the_blocks_go_by_the_module_that_owns_them() -> None:
    model = gpt2()
    norms = find_norms(model)
    blocks = find_blocks(model, norms)
    sites = norm_sites([norm.name for norm in norms], blocks)
    groups = group_parameters([name for name, _ in model.named_parameters()], blocks, sites)
    named = {site.name: (site.layer, site.role, len(names)) for site, names in groups.items()}
    assert named["transformer.h.1"] == (1, "block", 12)
    assert named["transformer.wte"] == (None, "transformer_wte", 1)
    assert named["transformer.ln_f"] == (2, "final", 2)


def test_what_normalises_a_layers_weights_is_no_norm_layer(caplog: pytest.LogCaptureFixture) -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8), nn.Linear(8, 8))
    nn.utils.parametrizations.weight_norm(model[0])
    nn.utils.parametrizations.spectral_norm(model[2])
    assert [norm.name for norm in find_norms(model)] == ["1"]
    assert caplog.text == ""
