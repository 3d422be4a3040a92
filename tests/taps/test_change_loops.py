"""The output change in loops that do more than call a model and step: adapters, skipped steps, pieces, decoders."""

import logging
import math
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import T5Config, T5ForConditionalGeneration

from stabmon import Monitor
from stabmon.records import PART_FAILED
from stabmon.taps.probe.calls import Call
from tests.taps.one_update import batch, copies, read, tap_on, tiny_gpt2, whole
from tests.trainings import Keep, watched


def moved(model: nn.Module, lr: float, **given: Tensor) -> dict[str, Tensor]:
    """theta_t of what is trained, after one update."""
    before = {name: p.detach().clone() for name, p in model.named_parameters() if p.requires_grad}
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr)
    model.eval()(**given).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    model.train()
    return before


def change_of(model: nn.Module, before: dict[str, Tensor], **given: Tensor) -> Tensor:
    """Of centred logits [N, V], from a float64 copy."""
    old = deepcopy(model).double().eval()
    old.load_state_dict(before, strict=False)
    new = deepcopy(model).double().eval()
    with torch.no_grad():
        logits: Tensor = new(**given).logits - old(**given).logits
    return (logits - logits.mean(-1, keepdim=True)).flatten(0, -2)


@pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning")  # peft asks for it
def test_adapters_on_a_frozen_bfloat16_base_move_the_output_exactly() -> None:
    config = LoraConfig(r=4, target_modules=["c_attn"], fan_in_fan_out=True, init_lora_weights=False)
    model = get_peft_model(tiny_gpt2().bfloat16(), config)
    before = moved(model, 1e-3, **batch())
    assert {p.dtype for p in model.parameters()} == {torch.bfloat16, torch.float32}
    found = whole(read(tap_on(model, Call((), batch()), before)))
    expected = change_of(model, before, **batch()).square().mean().item()
    assert found["output_change_msq"] == pytest.approx(expected, rel=1e-3)
    assert found["actual_loss_change"] / found["predicted_loss_change"] == pytest.approx(1, abs=0.3)


def test_a_decoders_output_counts_where_it_has_labels() -> None:
    torch.manual_seed(0)
    config = T5Config(
        vocab_size=61, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=2, decoder_start_token_id=0, dropout_rate=0
    )
    model = T5ForConditionalGeneration(config)
    labels = batch()["labels"].clone()
    labels[1:, 9:] = -100
    mask = torch.ones(4, 24, dtype=torch.int64)
    mask[:, 3:] = 0  # of the encoder, as long as the decoder's output by chance
    given = {"input_ids": batch()["input_ids"], "attention_mask": mask, "labels": labels}
    before = moved(model, 1e-3, **given)
    found = whole(read(tap_on(model, Call((), given), before)))
    change = change_of(model, before, **given)[labels.flatten() != -100]
    assert found["output_change_msq"] == pytest.approx(change.square().mean().item(), rel=1e-3)


@pytest.mark.parametrize("fused", [False, True])
def test_nothing_is_read_of_a_step_that_the_scaler_skipped(fused: bool, tmp_path: Path) -> None:
    sink, model = Keep(), tiny_gpt2()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=fused)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    with Monitor(model, optimizer, **watched(tmp_path, sink)) as monitor:
        for number in range(3):
            loss = model(**batch()).loss
            scaler.scale(loss * (math.inf if number == 1 else 1.0)).backward()  # type: ignore[no-untyped-call]
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
            monitor.step(loss)
    names = ("total_output_change_ratio", "output_change_kl", "output_change_error", "trust_ratio")
    read_of = [[not math.isnan(s.scalar(name)) for name in names] for s in sink.snapshots]
    assert read_of == [[True] * 4, [False] * 4, [True] * 4]
    assert all(s.scalar("probe_context_share") > 0 for s in sink.snapshots)


class Pieces(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.encoder = nn.Sequential(nn.Embedding(61, 16), nn.LayerNorm(16))
        self.decoder = nn.Linear(16, 61)


def in_pieces(model: Pieces, tokens: Tensor) -> tuple[Tensor, Tensor]:
    logits: Tensor = model.decoder(model.encoder(tokens))
    return F.cross_entropy(logits.flatten(0, 1), tokens.flatten()), logits


def of_pieces(folder: Path, **settings: Any) -> Keep:
    sink, model, tokens = Keep(), Pieces(), batch()["input_ids"]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with Monitor(model, optimizer, **watched(folder, sink), **settings) as monitor:
        loss, old = in_pieces(model, tokens)
        loss.backward()
        optimizer.step()
        monitor.step(loss)
        after = in_pieces(model, tokens)
    if settings:
        change = (after[1] - old).detach().double()
        change = change - change.mean(-1, keepdim=True)
        snapshot = sink.snapshots[0]
        assert snapshot["output_change_msq"][0] == pytest.approx(change.square().mean().item(), rel=1e-3)
        assert snapshot["actual_loss_change"][0] == pytest.approx((after[0] - loss).item(), rel=1e-3)
    return sink


def test_a_model_that_is_called_in_pieces_is_read_by_the_users_own_function(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "stabmon"):
        of_pieces(tmp_path, probe=batch()["input_ids"], forward=in_pieces)
        assert "pieces" not in caplog.text
        assert math.isnan(of_pieces(tmp_path).snapshots[0].scalar("total_output_change_ratio"))
    assert "give probe=batch and forward=function(model, batch)" in caplog.text


def test_the_probe_is_no_training_call_of_a_model_that_is_trained_in_eval_mode(tmp_path: Path) -> None:
    def seen(probe_every: int) -> Keep:
        sink, model = Keep(), tiny_gpt2().eval()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        settings = {**watched(tmp_path, sink), "dense_steps": 0, "every": 1, "probe_every": probe_every}
        with Monitor(model, optimizer, level="deep", **settings) as monitor:
            for number in range(3):
                given = {name: value[number : number + 2] for name, value in batch().items()}
                model(**given).loss.backward()
                optimizer.step()
                optimizer.zero_grad()
                monitor.step()
        return sink

    probed, never = seen(1).snapshots[-1], seen(1000).snapshots[-1]
    assert probed.scalar("total_output_change_ratio") > 0
    cost = {"step_seconds", "monitor_seconds"}
    for (name, site), a, b in zip(probed.layout.columns, probed.values, never.values, strict=True):
        if not math.isnan(b) and name not in cost:
            assert a == b, (name, site)


class Carrying(nn.Module):
    """Goes on from the state that the batch before left, so that it takes batches of one size alone."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.cell = nn.Embedding(61, 8), nn.LSTM(8, 8, batch_first=True)
        self.norm, self.head = nn.LayerNorm(8), nn.Linear(8, 61)
        self.state: tuple[Tensor, ...] | None = None

    def forward(self, tokens: Tensor) -> Tensor:
        hidden, state = self.cell(self.embedding(tokens), self.state)
        self.state = tuple(part.detach() for part in state)
        logits: Tensor = self.head(self.norm(hidden))
        return logits


def test_a_model_that_carries_a_state_is_probed_by_a_whole_batch(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, kept = Carrying(), Keep()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    monitor = Monitor(model, optimizer, folder=tmp_path, serve=False, sinks=[kept])
    tokens = torch.randint(61, (40, 11))
    for _ in range(3):
        loss = F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        state, before = model.state, copies(model)
        optimizer.step()
        optimizer.zero_grad()
        monitor.step(loss, targets=tokens[:, 1:])
        assert model.state is state
    monitor.close()
    answers = []
    for values in (before, copies(model)):
        model.load_state_dict(values)
        model.state = state
        answers.append(model(tokens[:, :-1]).detach())
    change = answers[1] - answers[0]
    naive = float((change - change.mean(-1, keepdim=True)).square().mean())
    assert kept.snapshots[-1].scalar("output_change_msq") == pytest.approx(naive, rel=1e-4)
    assert [event for event in kept.events if event.kind == PART_FAILED] == []
    assert monitor.architecture["description"]
