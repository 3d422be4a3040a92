"""Optimizers of the Trainer that take no step of their own, and what is told of them to whoever has only a callback."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.optim import SGD
from torch.optim.lr_scheduler import LambdaLR
from transformers import Trainer
from transformers.trainer_pt_utils import LayerWiseDummyOptimizer

from stabmon.taps.notices import Notices
from stabmon.taps.rhythm import UNSTEPPED, Rhythm
from tests.huggingface.test_losses import parts
from tests.test_huggingface import Keep, callback, model, trainer


def constant(optimizer: Any) -> LambdaLR:
    return LambdaLR(optimizer, lambda step: 1.0)


def test_layerwise_optimizers_that_step_in_the_backward_pass_are_read_as_one_that_does_not(tmp_path: Path) -> None:
    """As `optim="galore_adamw_layerwise"` of transformers; the Trainer holds one that has no parameter of the model."""
    layerwise, plain = Keep(), Keep()
    network, other = model(), model()
    by_parameter = {p: SGD([p], lr=0.1) for p in network.parameters()}

    def step(parameter: nn.Parameter) -> None:
        by_parameter[parameter].step()
        by_parameter[parameter].zero_grad()

    for parameter in network.parameters():
        parameter.register_post_accumulate_grad_hook(step)
    dummy, usual = LayerWiseDummyOptimizer(optimizer_dict=by_parameter), SGD(other.parameters(), lr=0.1)
    given = {"max_grad_norm": 0.0}
    Trainer(**parts(tmp_path, layerwise, network, **given), optimizers=(dummy, constant(dummy))).train()
    Trainer(**parts(tmp_path, plain, other, **given), optimizers=(usual, constant(usual))).train()
    assert all(torch.equal(a, b) for a, b in zip(network.parameters(), other.parameters(), strict=True))
    assert len(layerwise.snapshots) == len(plain.snapshots) == 4
    for one, another in zip(layerwise.snapshots, plain.snapshots, strict=True):
        for name in ("total_grad_norm", "grad_norm", "update_norm", "output_change_kl", "trust_ratio", "learning_rate"):
            np.testing.assert_allclose(one[name], another[name], rtol=1e-5, atol=1e-9, err_msg=name)
            assert np.isfinite(one[name]).all(), name


class InBackward(SGD):
    """As LOMO: weights change while the backward pass runs, and nobody calls `step`."""

    def __init__(self, network: nn.Module, frees: bool) -> None:
        super().__init__(network.parameters(), lr=0.1)
        self._frees = frees
        for parameter in network.parameters():
            parameter.register_post_accumulate_grad_hook(self._update)

    @torch.no_grad()
    def _update(self, parameter: nn.Parameter) -> None:
        parameter.add_(parameter.grad, alpha=-0.1)  # type: ignore[arg-type]
        if self._frees:
            parameter.grad = None

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Nothing is left to do."""


@pytest.mark.parametrize("frees", [False, True])
def test_gradients_that_are_freed_in_the_backward_pass_are_read_as_missing_and_never_in_part(
    tmp_path: Path, frees: bool
) -> None:
    inside, plain = Keep(), Keep()
    network, other = model(), model()
    given = parts(tmp_path, inside, network, max_grad_norm=0.0)
    strange, usual = InBackward(network, frees), SGD(other.parameters(), lr=0.1)
    Trainer(**given, optimizers=(strange, constant(strange))).train()
    Trainer(**parts(tmp_path, plain, other, max_grad_norm=0.0), optimizers=(usual, constant(usual))).train()
    assert all(torch.equal(a, b) for a, b in zip(network.parameters(), other.parameters(), strict=True))
    found, wanted = ([s.scalar("total_grad_norm") for s in kept.snapshots] for kept in (inside, plain))
    np.testing.assert_allclose(found, [np.nan] * 4 if frees else wanted, rtol=1e-5)


@pytest.mark.parametrize("under", ["trainer", "loop"])
def test_what_to_do_about_an_optimizer_that_does_not_step_fits_who_is_told(under: str) -> None:
    notices = Notices(callback=under == "trainer")
    rhythm = Rhythm(notices, 1)
    for _ in range(UNSTEPPED):
        rhythm.backward()
        rhythm.called(True, False)
    (told,) = notices.take()
    assert ("close this Monitor" in told["todo"]) == (under == "loop")
    assert ("LOMO" in told["why"]) == (under == "trainer")


LOOPS = {
    "never called": lambda rhythm: (rhythm.backward(), rhythm.stepped(1)),
    "no step": lambda rhythm: (rhythm.backward(), rhythm.called(True, False)),
    "nothing": lambda rhythm: rhythm.called(False, False),
    "early": lambda rhythm: (rhythm.backward(), rhythm.called(True, False), rhythm.stepped(1)),
    "several": lambda rhythm: (rhythm.stepped(1), rhythm.stepped(1), rhythm.called(True, False)),
    "each micro-batch": lambda rhythm: (
        rhythm.called(True, False), rhythm.stepped(1), rhythm.called(True, False),
    ),
}  # fmt: skip


@pytest.mark.parametrize("loop", LOOPS)
def test_nobody_who_has_a_callback_is_told_to_call_the_monitor(loop: str, caplog: pytest.LogCaptureFixture) -> None:
    notices, plain = Notices(callback=True), Notices()
    for told in (notices, plain):
        rhythm = Rhythm(told, 1)
        for _ in range(3 * UNSTEPPED):
            LOOPS[loop](rhythm)
    messages = [record.message for record in caplog.records]
    assert len(messages) == 2, "one each"
    words = messages[0] + str(notices.take())
    assert not any(phrase in words for phrase in ("monitor.step", "Monitor", "optimizer.step()"))
    assert "onitor" in messages[1]


def test_a_callback_that_is_not_told_of_steps_says_so_in_its_own_words(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Mine(type(callback(tmp_path))):  # type: ignore[misc]
        def on_step_end(self, *args: Any, **kwargs: Any) -> None:
            """Forgets what it overrides."""

    trainer(model(), tmp_path, Mine(serve=False, folder=tmp_path / "runs"), max_steps=UNSTEPPED + 5).train()
    told = [r.message for r in caplog.records if r.levelno == logging.WARNING and "nothing is recorded" in r.message]
    assert len(told) == 1
    assert "have each method call the one that it overrides" in told[0]
