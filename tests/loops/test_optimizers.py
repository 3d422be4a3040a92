"""Every kind of optimizer, and what loss scalers and loops do to it."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import bitsandbytes
import numpy as np
import pytest
import torch
from torch import nn
from torch.optim import Optimizer

from stabmon.records import Snapshot
from stabmon.taps.rhythm import UNSTEPPED
from tests.loops.decoder import Decoder, batches, loss_of
from tests.loops.recipe import STEPS, Recipe, adamw
from tests.loops.witness import EXACT, Attach, Watched, assert_read_right, both, by_site, hold, summed


def of(kind: Callable[..., Optimizer], **settings: Any) -> Callable[[nn.Module], list[Optimizer]]:
    return lambda model: [kind(model.parameters(), **settings)]


def two_groups(model: nn.Module) -> list[Optimizer]:
    flat, whole = ([p for p in model.parameters() if (p.ndim < 2) is one] for one in (True, False))
    groups = [{"params": whole, "weight_decay": 0.1}, {"params": flat, "lr": 3e-3}]
    return [torch.optim.AdamW(groups, lr=1e-2)]


def muon(model: nn.Module) -> list[Optimizer]:
    """Muon for the matrices inside the blocks, AdamW for the rest, as is usual."""
    matrices = [p for name, p in model.named_parameters() if name.startswith("blocks") and p.ndim == 2]
    ids = {id(p) for p in matrices}
    rest = [p for p in model.parameters() if id(p) not in ids]
    return [torch.optim.Muon(matrices, lr=1e-2), torch.optim.AdamW(rest, lr=1e-2)]


class Averaging(torch.optim.AdamW):
    """Its own work around another's step, as schedule-free optimizers do it: hooks fire twice, nested."""

    def step(self, closure: Any = None) -> Any:
        with torch.no_grad():
            for group in self.param_groups:
                for p in group["params"]:
                    p.mul_(0.999)
        found = super().step(closure)
        with torch.no_grad():
            for group in self.param_groups:
                for p in group["params"]:
                    p.mul_(1.001)
        return found


class SharpnessAware(Optimizer):
    """Steps up the gradient and back, around the step of another optimizer, as SAM does it: its own `step` is never
    called."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, {"lr": 1e-2})
        self.base_optimizer = torch.optim.AdamW(self.param_groups)
        self.param_groups = self.base_optimizer.param_groups
        self.kept: list[torch.Tensor] = []

    @torch.no_grad()
    def first_step(self) -> None:
        parameters = [p for group in self.param_groups for p in group["params"]]
        self.kept = [p.clone() for p in parameters]
        for p in parameters:
            p.add_(p.grad, alpha=0.05)
        self.zero_grad()

    @torch.no_grad()
    def second_step(self) -> None:
        for p, kept in zip([p for group in self.param_groups for p in group["params"]], self.kept, strict=True):
            p.data = kept
        self.base_optimizer.step()
        self.zero_grad()


def sharpness_aware(attach: Attach) -> None:
    model = Decoder()
    optimizer = SharpnessAware(model.parameters())
    witness = attach(model, [optimizer])
    for inputs, targets in batches(STEPS):
        for move in (optimizer.first_step, optimizer.second_step):
            with witness.forward():
                loss = loss_of(model, inputs, targets)
            loss.backward()
            witness.gradients()
            move()
        witness.step(loss.detach(), targets)


RATE = {"lr": 1e-2}
CELLS = {
    "SGD": Recipe(of(torch.optim.SGD, lr=0.1)),
    "SGD, momentum, fused": Recipe(of(torch.optim.SGD, lr=0.1, momentum=0.9, fused=True)),
    "Adam, one by one": Recipe(of(torch.optim.Adam, **RATE, foreach=False)),
    "AdamW, foreach": Recipe(of(torch.optim.AdamW, **RATE, foreach=True)),
    "AdamW, fused": Recipe(of(torch.optim.AdamW, **RATE, fused=True)),
    "AdamW, fused, scaled": Recipe(of(torch.optim.AdamW, **RATE, fused=True), scale=512.0),
    "AdamW, fused, scaled, clipped": Recipe(of(torch.optim.AdamW, **RATE, fused=True), scale=512.0, clip="norm"),
    "Adafactor": Recipe(of(torch.optim.Adafactor, **RATE)),
    "Muon and AdamW": Recipe(muon),
    "Muon and AdamW, accumulated, scaled": Recipe(muon, accumulate=2, scale=64.0),
    "two groups": Recipe(two_groups),
    "AdamW8bit": Recipe(of(bitsandbytes.optim.AdamW8bit, **RATE)),
    "nested step": Recipe(of(Averaging, **RATE)),
    "nested step, scaled": Recipe(of(Averaging, **RATE), scale=512.0),
    "LBFGS": Recipe(of(torch.optim.LBFGS, lr=0.1, max_iter=3), closure=True, model=partial(Decoder, dropout=0.0)),
    "a closure, accumulated": Recipe(adamw, closure=True, accumulate=2),
}


@pytest.mark.parametrize("cell", CELLS)
def test_numbers_are_a_naive_readers_and_the_training_is_the_same_bit_for_bit(tmp_path: Path, cell: str) -> None:
    assert_read_right(both(CELLS[cell], tmp_path))


def scalars(snapshots: Sequence[Snapshot], name: str) -> list[float]:
    return [snapshot.scalar(name) for snapshot in snapshots]


@pytest.mark.parametrize("fused", [False, True])
def test_a_step_that_the_scaler_skips_is_told_and_its_finite_gradients_are_at_their_own_scale(
    tmp_path: Path, fused: bool
) -> None:
    optimizers = of(torch.optim.AdamW, **RATE, fused=fused)
    found = both(Recipe(optimizers, scale=512.0, overflow_at=(1, 3)), tmp_path)
    snapshots = [snapshot for _, snapshot in found.pairs]
    assert scalars(snapshots, "skipped_steps") == [1.0, 0.0, 1.0, 0.0]
    assert scalars(snapshots, "learning_rate") == pytest.approx([np.nan, 1e-2, np.nan, 1e-2], nan_ok=True)
    assert [bool(np.nan_to_num(s["update_sq"]).any()) for s in snapshots] == [False, True, False, True]
    for naive, snapshot in found.pairs:
        expected = summed(snapshot, "grad_sq", naive.gradients)
        if snapshot.step == 1 and not fused:  # no scaler has been met, so that the scale isn't known
            expected = {site: value if np.isinf(value) else np.nan for site, value in expected.items()}
        hold(snapshot, "grad_sq", by_site(snapshot, "grad_sq"), expected, EXACT)
        assert np.isinf(snapshot.scalar("total_grad_norm")) == (snapshot.step in (1, 3))


def replaced(attach: Attach, steps: int) -> None:
    model = Decoder()
    witness = attach(model, adamw(model))
    optimizer = adamw(model)[0]
    for inputs, targets in batches(steps):
        loss = loss_of(model, inputs, targets)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        witness.step(loss, targets)


def test_an_optimizer_that_was_replaced_is_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    replaced(partial(Watched, tmp_path, probe_every=1000, dense_steps=0, every=1000), 2 * UNSTEPPED)
    told = [r for r in caplog.records if r.levelno == logging.WARNING and "took no step" in r.message]
    assert len(told) == 1
    assert "close this Monitor and make one with the new one" in told[0].message


def test_a_state_that_is_loaded_into_the_optimizer_leaves_it_watched(tmp_path: Path) -> None:
    def loop(attach: Attach) -> None:
        model = Decoder()
        optimizer = adamw(model)[0]
        witness = attach(model, [optimizer])
        for inputs, targets in batches(STEPS):
            with witness.forward():
                loss = loss_of(model, inputs, targets)
            loss.backward()
            witness.gradients()
            optimizer.step()
            optimizer.zero_grad()
            optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
            witness.step(loss, targets)

    assert_read_right(both(loop, tmp_path))


def test_an_optimizer_around_another_one_is_read_by_the_steps_of_that_one(tmp_path: Path) -> None:
    found = both(sharpness_aware, tmp_path)
    assert_read_right(found)
    assert [snapshot.scalar("learning_rate") for _, snapshot in found.pairs] == pytest.approx([1e-2] * STEPS)
