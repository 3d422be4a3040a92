from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from stabmon.bench.training import Size, Training
from stabmon.bench.waits import counting
from stabmon.monitor import Monitor
from stabmon.taps.loss import Loss

SMALL = Size(layers=1, width=32, batch=2, length=8)


def waits_of_a_step(folder: Path) -> int:
    training = Training(SMALL)
    with Monitor(training.model, training.optimizer, folder=folder, serve=False, every=1, probe_every=1) as monitor:
        training.step(monitor)
        with counting(training.device) as waits:
            training.step(monitor)
        assert monitor.latest is not None
        assert monitor.latest.step == 2
    return waits.count


def test_a_step_that_reads_everything_never_waits(tmp_path: Path) -> None:
    assert waits_of_a_step(tmp_path) == 0


@pytest.mark.parametrize(
    "wait",
    [
        lambda x: x.item(),
        lambda x: float(x),
        lambda x: bool(x.isfinite()),
        lambda x: x.tolist(),
        lambda x: x.cpu(),
        lambda x: x.numpy(),
        lambda x: x.nonzero(),
        lambda x: x[x > 0],
    ],
)
def test_a_tap_that_waits_once_is_counted_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wait: Callable[[Tensor], object]
) -> None:
    read = Loss.read

    def waits(tap: Loss) -> Tensor:
        values = read(tap)
        wait(values)
        return values

    monkeypatch.setattr(Loss, "read", waits)
    assert waits_of_a_step(tmp_path) == 1


def test_the_trainings_own_waits_are_not_counted() -> None:
    training = Training(SMALL)
    training.step()
    with counting(training.device) as waits:
        training.step()  # AdamW on the CPU reads its step counts
        float(torch.ones(1))
    assert waits.count == 0
