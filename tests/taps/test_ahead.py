"""Whether a model sees the tokens that it is to predict: against the gradient of what it says with respect to them."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import BertConfig, BertLMHeadModel

from stabmon import Monitor
from stabmon.detectors.wiring import Wiring
from stabmon.records import ARCHITECTURE, Alert
from stabmon.runlog import read
from stabmon.taps.model.ahead import looks_ahead
from stabmon.taps.probe.calls import Call

VOCABULARY, LENGTH, WIDTH = 32, 12, 16
PREFIX = 5
Kind = Literal["causal", "both", "prefix", "conv", "causal conv", "late norm", "noisy"]


class Net(nn.Module):
    """One layer that mixes places as its kind says, a BatchNorm that counts, and dropout."""

    def __init__(self, kind: Kind) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.kind = kind
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.norm = nn.LayerNorm(WIDTH)
        if kind in ("conv", "causal conv"):
            self.conv = nn.Conv1d(WIDTH, WIDTH, 3, padding=1 if kind == "conv" else 0)
        elif kind != "late norm":
            self.attention = nn.MultiheadAttention(WIDTH, 2, dropout=0.1, batch_first=True)
        self.counted = nn.BatchNorm1d(WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY)
        self.seen: Tensor | None = None

    def forward(self, tokens: Tensor) -> Tensor:
        self.seen = x = self.embedding(tokens)
        x = x + self.mixed(self.norm(x))
        logits: Tensor = self.head(self.counted(x.transpose(1, 2)).transpose(1, 2))
        return logits

    def mixed(self, x: Tensor) -> Tensor:
        if self.kind in ("conv", "causal conv"):
            x = x.transpose(1, 2)
            mixed: Tensor = self.conv(x if self.kind == "conv" else F.pad(x, (2, 0)))
            return mixed.transpose(1, 2)
        if self.kind == "late norm":
            return (x - x.mean(1, keepdim=True)) / x.std(1, keepdim=True)
        x = F.dropout(x, 0.5, training=True) if self.kind == "noisy" else x
        hidden = torch.ones(x.shape[1], x.shape[1]).triu(1).bool()
        hidden[:, :PREFIX] &= self.kind != "prefix"
        attended: Tensor = self.attention(x, x, x, attn_mask=None if self.kind == "both" else hidden)[0]
        return attended


def batch(rows: int = 4) -> tuple[Tensor, Tensor]:
    """Inputs and targets shifted by one."""
    whole = torch.randint(VOCABULARY, (rows, LENGTH + 1), generator=torch.Generator().manual_seed(1))
    return whole[:, :-1], whole[:, 1:]


def felt(net: Net, tokens: Tensor) -> bool:
    """By autograd: whether the last output but one depends on the last token."""
    net.eval()(tokens)[:, -2].square().sum().backward(inputs=[net.seen])  # type: ignore[list-item]
    assert net.seen is not None
    assert net.seen.grad is not None
    return bool(net.seen.grad[:, -1].any())


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("causal", False),
        ("prefix", False),
        ("causal conv", False),
        ("noisy", False),
        ("both", True),
        ("conv", True),
        ("late norm", True),
    ],
)
def test_what_is_seen_is_what_has_a_gradient(kind: Kind, expected: bool) -> None:
    tokens, targets = batch()
    if kind != "noisy":
        probed = Net(kind)
        probed.embedding.register_forward_hook(lambda module, given, out: out.retain_grad())
        assert felt(probed, tokens) is expected
    assert looks_ahead(Net(kind), Call((tokens,), {}), targets) is expected
    assert looks_ahead(Net(kind), Call((tokens,), {}), targets.flatten()) is expected
    assert looks_ahead(Net(kind).bfloat16(), Call((tokens,), {}), targets) is expected


@pytest.mark.parametrize("kind", ["both", "noisy"])
def test_nothing_of_the_training_changes(kind: Kind) -> None:
    net, (tokens, targets) = Net(kind).train(), batch()
    state, random = {k: v.clone() for k, v in net.state_dict().items()}, torch.get_rng_state()
    assert looks_ahead(net, Call((tokens,), {}), targets) is not None
    assert torch.equal(random, torch.get_rng_state())
    assert all(torch.equal(v, state[k]) for k, v in net.state_dict().items())
    assert net.training
    assert net.attention.training
    assert all(p.grad is None for p in net.parameters())


def test_where_the_targets_are_no_next_tokens_a_model_may_see_both_ways() -> None:
    tokens, targets = batch()
    masked = torch.where(torch.rand(tokens.shape) < 0.3, tokens, -100)
    for given in (None, tokens, masked, tokens.flip(1), torch.randint(5, (4,)), torch.rand(4, LENGTH)):
        assert looks_ahead(Net("both"), Call((tokens,), {}), given) is None
    assert looks_ahead(Net("both"), Call((torch.rand(4, LENGTH, WIDTH),), {}), targets) is None


class Whole(nn.Module):
    """Takes labels and returns its loss, as Hugging Face's models do: shifted inside, or not at all."""

    def __init__(self, kind: Kind, shifts: bool) -> None:
        super().__init__()
        self.net, self.shifts = Net(kind), shifts

    def forward(self, input_ids: Tensor, labels: Tensor) -> Any:
        logits = self.net(input_ids)
        said, wanted = (logits[:, :-1], labels[:, 1:]) if self.shifts else (logits, labels)
        return SimpleNamespace(loss=F.cross_entropy(said.flatten(0, 1), wanted.flatten()), logits=logits)


@pytest.mark.parametrize(
    ("kind", "shifts", "expected"),
    [("causal", True, False), ("both", True, True), ("both", False, None), ("causal", False, None)],
)
def test_labels_that_are_the_inputs_count_where_the_models_own_loss_shifts_them(
    kind: Kind, shifts: bool, expected: bool | None
) -> None:
    """Also where the model hardly says anything yet, so that all losses are near ln 32."""
    tokens, _ = batch()
    call, model = Call((), {"input_ids": tokens, "labels": tokens.clone()}), Whole(kind, shifts)
    assert looks_ahead(model, call, None) is expected
    with torch.no_grad():
        model.net.head.weight.mul_(0.01)
        model.net.head.bias.zero_()
    assert float(model(tokens, tokens).loss.detach()) == pytest.approx(np.log(VOCABULARY), rel=1e-3)
    assert looks_ahead(model, call, None) is expected


@pytest.mark.parametrize("decoder", [True, False])
def test_a_bert_that_was_not_told_to_be_a_decoder_sees_what_it_is_to_predict(decoder: bool) -> None:
    size = {"vocab_size": VOCABULARY, "hidden_size": 16, "num_hidden_layers": 2, "intermediate_size": 32}
    model = BertLMHeadModel(BertConfig(**size, num_attention_heads=2, is_decoder=decoder))
    tokens, _ = batch()
    assert looks_ahead(model, Call((), {"input_ids": tokens, "labels": tokens.clone()}), None) is not decoder


@pytest.mark.parametrize("kind", ["causal", "both"])
def test_of_padded_sequences_the_last_token_that_counts_is_changed(kind: Kind) -> None:
    """The targets say which do; here those of the padding are not there, and all padding is the same token."""
    tokens, targets = batch()
    lengths = torch.tensor([[5], [LENGTH], [8], [3]])
    inside = torch.arange(LENGTH)
    padded = torch.where(inside < lengths, tokens, 0)
    counted = torch.where(inside < lengths - 1, targets, -100)
    assert looks_ahead(Net(kind), Call((padded,), {}), counted) is (kind == "both")


def test_as_many_calls_are_made_whatever_the_tokens_are() -> None:
    """A model whose ranks wait for each other in its forward would else wait for ever."""
    tokens, targets = batch()
    same = torch.full((4, LENGTH), 7)
    counts = []
    for given, wanted in ((tokens, targets), (tokens, tokens), (tokens, tokens.flip(1)), (same, same)):
        net, calls = Net("causal"), list[int]()
        net.head.register_forward_hook(lambda *_, calls=calls: calls.append(1))
        looks_ahead(net, Call((given,), {}), wanted)
        counts.append(len(calls))
    assert counts == [3, 3, 3, 3]


def test_of_one_token_alone_nothing_is_known() -> None:
    same = torch.full((4, LENGTH), 7)
    assert looks_ahead(Net("both"), Call((same,), {}), same) is None


def test_it_never_raises() -> None:
    class Broken(Net):
        def forward(self, tokens: Tensor) -> Tensor:
            raise RuntimeError("no evaluation here")

    tokens, targets = batch()
    assert looks_ahead(Broken("both"), Call((tokens,), {}), targets) is None


def trained(folder: Path, kind: Kind) -> tuple[list[Alert], list[float | str | None]]:
    """Alerts of `wiring` in 14 steps, and what was told of the model."""
    net, found = Net(kind), list[Alert]()
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    keep = SimpleNamespace(
        name="keep", emit=lambda snapshot, alerts, events: found.extend(alerts), close=lambda s: None
    )
    with Monitor(
        net, optimizer, folder=folder, serve=False, dense_steps=1, detectors=[Wiring()], sinks=[keep]
    ) as monitor:
        for _ in range(14):
            tokens, targets = batch()
            loss = F.cross_entropy(net(tokens).flatten(0, 1), targets.flatten())
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            monitor.step(loss, targets=targets)
    assert monitor.run_log is not None
    events = [event for _, events in read(monitor.run_log).feeds() for event in events]
    return found, [event.detail.get("looks_ahead") for event in events if event.kind == ARCHITECTURE]


def test_a_leak_is_told_at_step_12_and_a_causal_model_is_silent(tmp_path: Path) -> None:
    assert trained(tmp_path / "causal", "causal") == ([], [0.0])
    (alert,), told = trained(tmp_path / "both", "both")
    assert told == [1.0]
    assert (alert.step, alert.severity, alert.detector) == (12, "warning", "wiring")
    assert "sees the tokens that it is to predict" in alert.action
