"""Models that are pruned, tied, shortened, unfrozen or grown while they train: read on as far as can be, else said."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import prune

from stabmon.records import PART_FAILED
from stabmon.taps.newcomers import EVERY
from tests.loops.decoder import Decoder, batches, loss_of
from tests.loops.recipe import adamw
from tests.loops.witness import Watched, assert_same, seed, state

Change = Callable[[Decoder, torch.optim.Optimizer], object]


def pruned(model: Decoder, _: torch.optim.Optimizer) -> None:
    prune.l1_unstructured(model.blocks[0].get_submodule("up"), "weight", amount=0.3)


def tied(model: Decoder, _: torch.optim.Optimizer) -> None:
    model.head.weight = model.embedding.weight


def shortened(model: Decoder, _: torch.optim.Optimizer) -> None:
    del model.blocks[1]


def trained(folder: Path, change: Change, watch: bool = True, steps: int = 6) -> tuple[Decoder, Watched | None, Tensor]:
    """The model, and how far the last step moved its logits for the first batch."""
    seed()
    model = Decoder(dropout=0.0)
    [optimizer] = adamw(model)
    watched = Watched(folder, model, [optimizer]) if watch else None
    first, before = next(batches(1))[0], torch.empty(0)
    for step, (inputs, targets) in enumerate(batches(steps)):
        if step == 3:
            change(model, optimizer)
        before = model(first).detach()
        loss = loss_of(model, inputs, targets)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if watched:
            watched.step(loss, targets)
    if watched:
        watched.monitor.close()
    return model, watched, model(first).detach() - before


@pytest.mark.parametrize("change", [pruned, tied, shortened])
def test_the_output_change_is_exact_after_it_and_the_training_the_same(tmp_path: Path, change: Change) -> None:
    (on, watched, moved), (off, *_) = (trained(tmp_path, change, watch) for watch in (True, False))
    assert watched
    assert [event for event in watched.kept.events if event.kind == PART_FAILED] == []
    naive = float((moved - moved.mean(-1, keepdim=True)).square().mean())
    assert watched.kept.snapshots[-1].scalar("output_change_msq") == pytest.approx(naive, rel=1e-3)
    assert_same(state(on, []), state(off, []))


def grown(model: Decoder, optimizer: torch.optim.Optimizer) -> None:
    model.blocks.append(Decoder(dropout=0.0).blocks[0])
    optimizer.add_param_group({"params": list(model.blocks[2].parameters())})


def replaced(model: Decoder, optimizer: torch.optim.Optimizer) -> None:
    model.head = nn.Linear(model.head.in_features, model.head.out_features, bias=False)


@pytest.mark.parametrize(
    ("change", "such_as"), [(grown, "12 parameters, such as blocks.2."), (replaced, "head.weight")]
)
def test_what_is_trained_since_is_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, change: Change, such_as: str
) -> None:
    trained(tmp_path, change, steps=2 * EVERY + 1)
    told = [r.message for r in caplog.records if r.levelno == logging.WARNING and "are not read" in r.message]
    assert len(told) == 1
    assert such_as in told[0]
