"""What is under watch, and what is said of the rest."""

import logging

import pytest
import torch
from torch import nn

from stabmon.settings import Settings
from stabmon.taps.parts import examine


def test_trainable_parameters_that_no_given_optimizer_holds_are_counted_and_one_is_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    model = nn.ModuleDict({"generator": nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4)), "critic": nn.Linear(4, 1)})
    optimizer = torch.optim.SGD(model["generator"].parameters(), lr=0.1)
    parts = examine(model, [optimizer], Settings.of())
    assert len(parts.groups.names) == 4
    (told,) = (record.getMessage() for record in caplog.records if record.levelno == logging.WARNING)
    assert "holds 2 trainable parameters, such as critic.weight" in told


def test_frozen_parameters_are_nobodys(caplog: pytest.LogCaptureFixture) -> None:
    model = nn.ModuleDict({"head": nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4)), "base": nn.Linear(4, 1)})
    model["base"].requires_grad_(False)
    examine(model, [torch.optim.SGD(model["head"].parameters(), lr=0.1)], Settings.of())
    assert not caplog.records
