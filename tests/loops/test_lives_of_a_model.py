"""What happens to a model in its life: copies, frozen parts, two stacks, exceptions, a pause."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel
from transformers import BartConfig, BartForConditionalGeneration, T5Config, T5ForConditionalGeneration

from stabmon import Monitor
from tests.loops.decoder import Decoder, batches, loss_of
from tests.loops.recipe import STEPS, adamw
from tests.loops.witness import Attach, assert_read_right, assert_same, both, seed, state
from tests.trainings import Keep, watched


def test_copies_that_average_the_weights_are_not_read(tmp_path: Path) -> None:
    def loop(attach: Attach) -> None:
        model = Decoder().train()
        [optimizer] = adamw(model)
        witness = attach(model, [optimizer])
        average, copied = AveragedModel(model), copy.deepcopy(model)
        for inputs, targets in batches(STEPS):
            with witness.forward():
                loss = loss_of(model, inputs, targets)
            loss.backward()
            witness.gradients()
            optimizer.step()
            optimizer.zero_grad()
            average.update_parameters(model)
            average(inputs)
            copied(inputs).sum().backward()
            witness.step(loss, targets)

    assert_read_right(both(loop, tmp_path))


def test_frozen_norms_and_a_frozen_block_are_watched_as_norms_alone(tmp_path: Path) -> None:
    def loop(attach: Attach) -> None:
        model = Decoder().train()
        model.blocks[0].requires_grad_(False)
        model.norm.requires_grad_(False)
        optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2)
        witness = attach(model, [optimizer])
        for inputs, targets in batches(STEPS):
            with witness.forward():
                loss = loss_of(model, inputs, targets)
            loss.backward()
            witness.gradients()
            optimizer.step()
            optimizer.zero_grad()
            witness.step(loss, targets)

    found = both(loop, tmp_path)
    assert_read_right(found)
    assert [s.name for s in found.pairs[0][1].layout.sites_of("grad_sq")] == ["embedding", "blocks.1", "head"]


def t5() -> nn.Module:
    size = {"d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 2, "num_heads": 2, "vocab_size": 32}
    return T5ForConditionalGeneration(T5Config(**size, decoder_start_token_id=0, tie_word_embeddings=False))


def bart() -> nn.Module:
    stacks = {f"{side}_{what}": n for side in ("encoder", "decoder") for what, n in SIZES.items()}
    return BartForConditionalGeneration(BartConfig(vocab_size=32, d_model=16, max_position_embeddings=32, **stacks))


SIZES = {"layers": 2, "attention_heads": 2, "ffn_dim": 32}


@pytest.mark.parametrize("make", [t5, bart])
def test_an_encoder_and_a_decoder(tmp_path: Path, make: Callable[[], nn.Module]) -> None:
    def loop(attach: Attach) -> None:
        model = make().train()
        [optimizer] = adamw(model)
        witness = attach(model, [optimizer])
        for inputs, targets in batches(STEPS):
            with witness.forward():
                loss = model(input_ids=inputs, labels=targets[:, :7].contiguous()).loss
            loss.backward()
            witness.gradients()
            optimizer.step()
            optimizer.zero_grad()
            witness.step()

    found = both(loop, tmp_path)
    assert_read_right(found, norms=False)
    last = found.pairs[-1][1]
    assert np.isfinite(last["norm_input_msq"]).all()
    for name in ("loss", "context_share", "unigram_loss", "bigram_loss", "total_output_change_ratio", "trust_ratio"):
        assert np.isfinite(last.scalar(name)), name


class Broken(torch.autograd.Function):
    """Fails in the backward pass."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        raise RuntimeError("out of memory")


def train(model: nn.Module, optimizer: torch.optim.Optimizer, monitor: Monitor | None, ending: Any = None) -> None:
    for step, (inputs, targets) in enumerate(batches(STEPS)):
        loss = loss_of(model, inputs, targets)
        if step == 1 and ending is not None:
            raise ending if not isinstance(ending, type) else ending.apply(loss).backward()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if monitor:
            monitor.step(loss, targets)


@pytest.mark.parametrize(
    ("ending", "end"), [(ValueError("mine"), "failed"), (Broken, "failed"), (KeyboardInterrupt(), "stopped")]
)
def test_after_an_exception_the_next_run_of_the_same_model_is_what_it_would_be(
    tmp_path: Path, ending: Any, end: str
) -> None:
    ends, logs = [], []
    for watching in (False, True):
        seed()
        model = Decoder().train()
        [optimizer] = adamw(model)
        for trouble in (ending, None):
            kept = Keep()
            given = watched(tmp_path, kept)
            try:
                if watching:
                    with Monitor(model, optimizer, **given) as monitor:
                        train(model, optimizer, monitor, trouble)
                else:
                    train(model, optimizer, None, trouble)
            except (ValueError, RuntimeError, KeyboardInterrupt):
                optimizer.zero_grad()
            if watching:
                logs.append((kept.state, len(kept.snapshots)))
        ends.append(state(model, [optimizer]))
    assert_same(*ends)
    assert logs == [(end, 1), ("finished", STEPS)]
    assert not any(m._forward_pre_hooks or m._forward_hooks for m in model.modules())
    assert not any(p._post_accumulate_grad_hooks for p in model.parameters())


def test_a_run_that_goes_on_between_two_readings_reads_all_that_one_does_which_goes_on_at_one(tmp_path: Path) -> None:
    def read(start_step: int) -> set[str]:
        model = Decoder()
        [optimizer] = adamw(model)
        kept = Keep()
        settings = {**watched(tmp_path, kept), "every": 4, "probe_every": 4, "level": "deep"}
        with Monitor(model, optimizer, start_step=start_step, **settings) as monitor:
            for inputs, targets in batches(12 - start_step):
                loss = loss_of(model, inputs, targets)
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
                monitor.step(loss, targets)
        snapshot = next(snapshot for snapshot in kept.snapshots if snapshot.step == 12)
        named = zip(snapshot.layout.columns, snapshot.values, strict=True)
        return {f"{statistic} {site}" for (statistic, site), value in named if not np.isnan(value)}

    at, between = read(7), read(5)
    assert any(name.startswith("attention_entropy") for name in at)
    assert between == at
