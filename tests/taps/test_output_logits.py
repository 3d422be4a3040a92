"""log Z and the scale of the logits against float64 over every token that counts."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertModel,
    LlamaConfig,
    LlamaForCausalLM,
    T5Config,
    T5ForConditionalGeneration,
)

from stabmon.taps import Due
from stabmon.taps.output_logits import MAX_TOKENS, OutputLogits, measure
from tests.taps.attention_naive import measured, parts_of, read

IDS = torch.randint(2, 61, (2, 14), generator=torch.Generator().manual_seed(0))
PADDED = (torch.arange(14) < torch.tensor([[14], [9]])).long()
TEXT: dict[str, Any] = {"vocab_size": 61, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
TEXT |= {"intermediate_size": 8, "initializer_range": 0.4, "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 1}
LABELS = IDS.clone()
LABELS[0, :5] = -100
LABELS[1, 7:] = -100


def naive(logits: Tensor, counted: Tensor) -> list[float]:
    """[log_z, log_z_msq, logit_max, logit_mean], one token at a time, in float64."""
    rows = [row for row, weight in zip(logits.flatten(0, -2), counted.flatten(), strict=True) if weight]
    log_z = [math.log(sum(math.exp(v) for v in row.double().tolist())) for row in rows]
    whole = torch.stack(rows).double()
    mean = float(whole.mean())
    return [sum(log_z) / len(rows), sum(z * z for z in log_z) / len(rows), float(whole.abs().max()), mean]


def llama() -> nn.Module:
    torch.manual_seed(0)
    return LlamaForCausalLM(LlamaConfig(**TEXT)).eval()


def bert() -> nn.Module:
    torch.manual_seed(0)
    return BertForMaskedLM(BertConfig(**TEXT)).eval()


def t5() -> nn.Module:
    torch.manual_seed(0)
    sizes = {"d_model": 16, "d_kv": 8, "d_ff": 24, "num_layers": 2, "num_heads": 2, "vocab_size": 61}
    return T5ForConditionalGeneration(T5Config(**sizes, decoder_start_token_id=0)).eval()


NEXT = torch.cat((LABELS[:, 1:] != -100, torch.zeros(2, 1, dtype=torch.bool)), dim=1)
EVERY = torch.ones(2, 14)
MODELS: dict[str, tuple[Callable[[], nn.Module], dict[str, Tensor], Tensor]] = {
    "causal, no labels": (llama, {"input_ids": IDS}, EVERY),
    "causal, labels of the next token": (llama, {"input_ids": IDS, "labels": LABELS}, NEXT),
    "causal, padded": (llama, {"input_ids": IDS, "attention_mask": PADDED}, PADDED),
    "masked, labels of the token": (bert, {"input_ids": IDS, "labels": LABELS}, LABELS != -100),
    "encoder and decoder": (t5, {"input_ids": IDS, "attention_mask": PADDED, "labels": LABELS}, LABELS != -100),
}


@pytest.mark.parametrize("name", MODELS)
def test_hugging_face_models_over_the_tokens_of_their_loss(name: str) -> None:
    make, batch, counted = MODELS[name]
    found = measured(OutputLogits, make(), lambda m: m(**batch))
    assert list(found.values()) == pytest.approx(naive(make()(**batch).logits.detach(), counted), rel=1e-5)


class Plain(nn.Module):
    """After nanoGPT: returns what `pick` makes of its logits and its loss."""

    def __init__(self, pick: Callable[[Tensor, Tensor], Any]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding, self.norm, self.head = nn.Embedding(61, 16), nn.LayerNorm(16), nn.Linear(16, 61)
        self.pick = pick

    def forward(self, ids: Tensor) -> Any:
        logits = 5 * self.head(self.norm(self.embedding(ids)))
        return self.pick(logits, nn.functional.cross_entropy(logits.flatten(0, 1), ids.flatten()))


@pytest.mark.parametrize(
    "pick", [lambda logits, loss: logits, lambda logits, loss: (logits, loss), lambda logits, loss: (loss, logits)]
)
def test_a_tensor_or_a_tuple_with_one(pick: Callable[[Tensor, Tensor], Any]) -> None:
    found = measured(OutputLogits, Plain(pick), lambda m: m(IDS))
    wanted = naive(Plain(lambda logits, loss: logits)(IDS).detach(), EVERY)
    assert list(found.values()) == pytest.approx(wanted, rel=1e-5)


@pytest.mark.parametrize(
    ("model", "call"),
    [
        (Plain(lambda logits, loss: loss), lambda m: m(IDS)),
        (BertModel(BertConfig(**TEXT)), lambda m: m(input_ids=IDS)),
        (nn.Sequential(nn.Conv2d(3, 4, 1), nn.LayerNorm(4)), lambda m: m(torch.randn(2, 3, 4, 4))),
    ],
    ids=["loss alone", "hidden states", "image"],
)
def test_what_is_not_logits_is_not_read_and_said_once(
    model: nn.Module, call: Callable[[nn.Module], Any], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="stabmon")
    tap = OutputLogits(parts_of(model))
    for _ in range(3):
        tap.arm(Due(layers=True))
        call(model)
        assert all(value != value for value in read(tap).values())
    assert caplog.text.count("returns no logits") == 1


def test_half_precision_is_summed_in_float32() -> None:
    logits = torch.randn(3, 4, 1000, generator=torch.Generator().manual_seed(0)).mul(4).bfloat16()
    found, count = measure(logits, torch.ones(3, 4))
    assert found.tolist() == pytest.approx(naive(logits, torch.ones(3, 4)), rel=1e-5)
    assert int(count) == 12


def test_a_large_vocabulary_is_taken_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stabmon.taps.output_logits.MAX_VALUES", 100_000)
    logits = torch.randn(30, 40_000, generator=torch.Generator().manual_seed(0))
    found, _ = measure(logits, torch.ones(30))
    wanted = logits.double()
    log_z = wanted.logsumexp(-1)
    exact = [log_z.mean(), log_z.square().mean(), wanted.abs().max(), wanted.mean()]
    assert found.tolist() == pytest.approx([float(v) for v in exact], rel=1e-5, abs=1e-7)


def test_of_many_tokens_some_are_read_at_an_odd_stride() -> None:
    logits = torch.arange(4096.0).unsqueeze(-1).expand(4096, 2)
    found, count = measure(logits, torch.ones(4096))
    read = range(0, 4096, 9)
    assert int(count) == len(read) <= MAX_TOKENS
    assert float(found[3]) == pytest.approx(sum(read) / len(read))


@pytest.mark.parametrize(
    ("value", "counted", "wanted"),
    [(math.inf, 1, math.inf), (math.nan, 1, math.inf), (math.nan, 0, 0.0)],
)
def test_what_is_not_finite_shows_unless_it_does_not_count(value: float, counted: int, wanted: float) -> None:
    logits = torch.zeros(2, 2)
    logits[1, 0] = value
    found, _ = measure(logits, torch.tensor([1, counted]))
    assert float(found[2]) == wanted


def test_without_a_token_nothing_is_read() -> None:
    assert measure(torch.randn(3, 4), torch.zeros(3))[0].isnan().all()


def test_micro_batches_are_weighted_by_their_tokens() -> None:
    found = measured(OutputLogits, llama(), lambda m: m(input_ids=IDS), lambda m: m(input_ids=IDS[:1, :5]))
    one, two = (measured(OutputLogits, llama(), lambda m, ids=ids: m(input_ids=ids)) for ids in (IDS, IDS[:1, :5]))
    assert found["log_z", ""] == pytest.approx((28 * one["log_z", ""] + 5 * two["log_z", ""]) / 33, rel=1e-6)
    assert found["logit_max", ""] == max(one["logit_max", ""], two["logit_max", ""])


def test_a_detached_model_is_not_read_and_a_step_without_layers_neither() -> None:
    model = llama()
    tap = OutputLogits(parts_of(model))
    tap.arm(Due())
    model(input_ids=IDS)
    assert tap.read().isnan().all()
    tap.arm(Due(layers=True))
    tap.detach()
    model(input_ids=IDS)
    assert tap.read().isnan().all()


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
def test_a_compiled_model_gives_the_same_without_a_break() -> None:
    torch._dynamo.reset()
    model = Plain(lambda logits, loss: (logits, loss))
    eager = measured(OutputLogits, model, lambda m: m(IDS))
    parts = parts_of(model)
    parts.norm_tap.detach()  # what it adds to a graph takes most of the time
    tap = OutputLogits(parts)
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    for _ in range(2):
        tap.arm(Due(layers=True))
        compiled(IDS)
        assert read(tap) == pytest.approx(eager, rel=1e-6)
