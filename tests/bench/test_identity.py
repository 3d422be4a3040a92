from __future__ import annotations

import pytest
import torch
from torch import nn
from typer.testing import CliRunner

from stabmon.bench.identity import rows, training
from stabmon.bench.identity.training import train
from stabmon.bench.identity.ways import WAYS, Way
from stabmon.cli import app

QUICK = ("float32", "checkpointing, not reentrant")


def way(name: str) -> Way:
    return next(way for way in WAYS if way.name == name)


@pytest.mark.parametrize("name", QUICK)
def test_a_training_leaves_the_same_bits_behind(name: str) -> None:
    (row,) = rows(way(name), ["deep"])
    assert row.identical, row.note
    assert "after 6 optimizer steps" in row.note


def test_a_single_bit_and_a_single_random_number_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = train(way("float32"), None)
    assert not plain.differences(train(way("float32"), None))

    def touched(network: nn.Module) -> nn.Module:
        with torch.no_grad():
            network.get_parameter("head.weight")[0, 0] *= 1 + 2**-22
        return network

    assert "weights head.weight" in plain.differences(train(Way("touched", touched), None))
    monkeypatch.setattr(training, "_evaluate", lambda *_: torch.rand(1))
    drawn = plain.differences(train(Way("drawn", evaluate=True), None))
    assert drawn == ["random state of torch"]


def test_some_steps_of_the_scaled_training_are_skipped_and_some_are_not() -> None:
    assert 0 < train(way("float16 autocast, GradScaler, skipped steps"), None).steps < training.STEPS


def test_a_mode_that_is_not_there_is_one_line() -> None:
    done = CliRunner().invoke(app, ["bench", "identity", "--only", "quantum"])
    assert done.exit_code == 2
    assert done.stderr.startswith("stabmon: only is 'quantum'; give part of one of: float32, bfloat16 autocast")
