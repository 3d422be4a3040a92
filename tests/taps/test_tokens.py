from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from transformers import BertConfig, BertForMaskedLM, GPT2Config, GPT2LMHeadModel, T5Config, T5ForConditionalGeneration

from stabmon.taps.forward import Forward
from stabmon.taps.model.anatomy import find_blocks, find_norms

SMALL = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
IDS = torch.arange(12).reshape(3, 4)
KEEP = torch.tensor([[1, 1, 1, 1], [1, 1, 1, 0], [0, 0, 1, 1]])
COUNT = torch.tensor([[0, 1, 1, 1], [0, 1, 1, 0], [0, 0, 0, 1]])
"""Kept tokens but for each sequence's first."""


def fail(error: Exception) -> None:
    raise error


def weights_seen(model: nn.Module, *args: Tensor, **kwargs: Tensor) -> dict[str, Tensor | None]:
    """By norm, the weights of its input in one training forward."""
    norms = find_norms(model)
    stacks = {block.rpartition(".")[0].rpartition(".")[0] for block in find_blocks(model, norms)}
    forward = Forward(model, [norm.name for norm in norms], fail, stacks)
    seen: dict[str, Tensor | None] = {}
    for norm in norms:
        norm.module.register_forward_pre_hook(
            lambda _, given, name=norm.name: seen.__setitem__(name, forward.weights_of(given[0]))
        )
    model.train()
    model(*args, **kwargs)
    forward.detach()
    return seen


def all_equal(seen: dict[str, Tensor | None], expected: Tensor) -> bool:
    return all(weights is not None and torch.equal(weights, expected.float()) for weights in seen.values())


def gpt2() -> nn.Module:
    return GPT2LMHeadModel(GPT2Config(vocab_size=64, n_positions=16, n_embd=16, n_layer=2, n_head=2))


def t5() -> nn.Module:
    return T5ForConditionalGeneration(
        T5Config(vocab_size=64, d_model=16, d_kv=8, d_ff=32, num_layers=2, num_heads=2, decoder_start_token_id=0)
    )


def test_padding_and_each_sequence_s_first_token_do_not_count() -> None:
    assert all_equal(weights_seen(gpt2(), input_ids=IDS, attention_mask=KEEP), COUNT)


def test_a_mask_given_by_position_is_known_by_its_parameter_s_name() -> None:
    bert = BertForMaskedLM(BertConfig(vocab_size=64, **SMALL))
    assert all_equal(weights_seen(bert, IDS, KEEP), COUNT)


def test_without_a_mask_all_but_the_first_position_count() -> None:
    assert all_equal(weights_seen(gpt2(), IDS), torch.tensor([[0, 1, 1, 1]]).expand(3, 4))


def test_a_sequence_of_one_token_counts() -> None:
    assert all(weights is None for weights in weights_seen(gpt2(), IDS[:, :1]).values())


def test_encoder_and_decoder_of_equal_length_have_each_its_own_mask() -> None:
    seen = weights_seen(t5(), input_ids=IDS, attention_mask=KEEP, labels=IDS)
    plain = torch.tensor([[0, 1, 1, 1]]).expand(3, 4)
    encoder = {name: weights for name, weights in seen.items() if name.startswith("encoder")}
    decoder = {name: weights for name, weights in seen.items() if name.startswith("decoder")}
    assert len(encoder) == 5
    assert len(decoder) == 7
    assert all_equal(encoder, COUNT)
    assert all_equal(decoder, plain)
    seen = weights_seen(t5(), input_ids=IDS, labels=IDS, decoder_attention_mask=KEEP)
    assert all_equal({n: w for n, w in seen.items() if n.startswith("encoder")}, plain)
    assert all_equal({n: w for n, w in seen.items() if n.startswith("decoder")}, COUNT)


class Tagger(nn.Module):
    """An embedding and torch's encoder, which is told of the padding."""

    def __init__(self, batch_first: bool) -> None:
        super().__init__()
        self.embedding = nn.Embedding(64, 16)
        layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=batch_first)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward(self, ids: Tensor, padded: Tensor) -> Tensor:
        return self.encoder(self.embedding(ids), src_key_padding_mask=padded)


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("additive", [True, False])
def test_padding_told_to_torch_s_encoder_alone(batch_first: bool, additive: bool) -> None:
    padded = KEEP == 0
    if additive:
        padded = torch.zeros(3, 4).masked_fill(padded, -torch.inf)
    ids, expected = (IDS, COUNT) if batch_first else (IDS.T, COUNT.T)
    assert all_equal(weights_seen(Tagger(batch_first), ids, padded), expected)


def test_shapes_that_are_read() -> None:
    model = gpt2()
    forward = Forward(model, [norm.name for norm in find_norms(model)], fail)
    model(IDS, attention_mask=KEEP)
    count = COUNT.float()
    assert torch.equal(forward.weights_of(torch.ones(12, 16)), count.reshape(12))
    assert torch.equal(forward.weights_of(torch.ones(3, 4, 2, 8)), count[:, :, None].expand(3, 4, 2))
    assert torch.equal(forward.weights_of(torch.ones(3, 2, 4, 8)), count[:, None, :].expand(3, 2, 4))
    assert forward.weights_of(torch.ones(3, 16)) is None
    assert forward.weights_of(torch.ones(3, 5, 16)) is None


def test_images_and_vectors_count_whole() -> None:
    model = nn.Sequential(nn.LayerNorm(8))
    assert all(weights is None for weights in weights_seen(model, torch.ones(3, 5, 8)).values())


# Dynamo itself touches .grad of every tensor that it wraps.
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
def test_a_compiled_model_has_the_same_weights_and_no_further_break() -> None:
    tagger = Tagger(batch_first=True)
    forward = Forward(tagger, [norm.name for norm in find_norms(tagger)], fail, ["encoder"])
    found: list[Tensor] = []

    class Read:
        weights: Tensor | None = None

    read = Read()
    tagger.encoder.layers[1].norm2.register_forward_pre_hook(
        lambda _, given: setattr(read, "weights", forward.weights_of(given[0]))
    )
    compiled = torch.compile(tagger, backend="eager", fullgraph=True)
    for padded in (KEEP == 0, KEEP.flip(0) == 0):
        compiled(IDS, padded)
        assert read.weights is not None
        found.append(read.weights.clone())
    assert torch.equal(found[0], COUNT.float())
    assert torch.equal(found[1], COUNT.flip(0).float())
