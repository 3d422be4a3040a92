"""Runs that start from weights that had learnt: recognised, said in a line, and no fault found in what is none."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import peft
import pytest
import torch
from torch import Tensor, nn
from transformers import GPT2Config, GPT2LMHeadModel

from stabmon import Monitor
from tests.loops.decoder import VOCABULARY, Decoder, loss_of
from tests.trainings import Keep, watched


def walk(steps: int, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Tokens of which each is mostly the one before plus 1: what there is to learn is learnt in 150 steps."""
    generator = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        jumps = torch.randint(VOCABULARY, (8, 17), generator=generator)
        tokens = torch.where(torch.rand(8, 17, generator=generator) < 0.9, 1, jumps).cumsum(1) % VOCABULARY
        yield tokens[:, :-1], tokens[:, 1:]


def train(model: nn.Module, rate: float, steps: int, folder: Path, seed: int, **settings: Any) -> tuple[Monitor, Keep]:
    kept = Keep()
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=rate)
    with Monitor(model, optimizer, **{**watched(folder, kept), "probe_every": 1000, "dense_steps": 0, **settings}) as m:
        for inputs, targets in walk(steps, seed):
            loss = loss_of(model, inputs, targets)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            m.step(loss, targets=targets)
    return m, kept


def told(kept: Keep) -> list[Any]:
    return [event.detail["why"] for event in kept.events if event.kind == "pretrained"]


def test_a_network_of_150_steps_that_is_trained_on_is_recognised_by_its_first_loss(tmp_path: Path) -> None:
    model = Decoder(dropout=0.0)
    scratch, first = train(model, 1e-2, 150, tmp_path, 0)
    assert told(first) == []
    assert first.snapshots[-1].scalar("pretrained") == 0.0
    again, second = train(model, 1e-3, 100, tmp_path, 1)
    assert len(told(second)) == 1
    assert "is far below the unigram loss" in told(second)[0]
    assert second.snapshots[-1].scalar("pretrained") == 1.0
    assert [*scratch.alerts, *again.alerts] == []


def test_a_resumed_run_from_scratch_stays_one(tmp_path: Path) -> None:
    model = Decoder(dropout=0.0)
    train(model, 1e-2, 150, tmp_path, 0)
    _, resumed = train(model, 1e-2, 20, tmp_path, 1, start_step=150)
    assert told(resumed) == []
    assert resumed.snapshots[-1].scalar("pretrained") == 0.0


class Logits(nn.Module):
    """A Hugging Face model that returns its logits."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: Tensor) -> Tensor:
        logits: Tensor = self.model(input_ids=tokens).logits
        return logits


@pytest.mark.filterwarnings("ignore:fan_in_fan_out:UserWarning", "ignore:`is_gradient_checkpointing`:FutureWarning")
def test_a_lora_run_is_recognised_at_its_first_step_and_its_frozen_norms_are_watched(tmp_path: Path) -> None:
    torch.manual_seed(0)
    size = {"vocab_size": VOCABULARY, "n_positions": 16, "n_embd": 16, "n_layer": 2, "n_head": 2}
    base = GPT2LMHeadModel(GPT2Config(**size, bos_token_id=0, eos_token_id=0))
    train(Logits(base), 1e-2, 150, tmp_path, 0)
    lora = peft.get_peft_model(base, peft.LoraConfig(r=2, target_modules=["c_attn"]))
    monitor, kept = train(Logits(lora), 1e-3, 100, tmp_path, 1, every=1)
    assert len(told(kept)) == 1
    assert "of its parameters are not trained" in told(kept)[0]
    first = kept.snapshots[0]
    assert first.scalar("pretrained") == 1.0
    assert len(first["norm_input_msq"]) == 5
    assert not torch.tensor(first["norm_input_msq"]).isnan().any()
    assert [site.layer for site in first.layout.sites_of("grad_norm")] == [0, 1]
    assert list(monitor.alerts) == []
