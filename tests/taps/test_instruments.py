"""Taps of level deep, made to fail at each thing that they are asked: the others go on, and so does the training."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from stabmon import Monitor
from stabmon.records import PART_FAILED
from tests.trainings import BATCH, Keep, Network, adamw, loader

SPARED = "gradients"


def _parameters(network: nn.Module) -> Tensor:
    return torch.cat([p.detach().flatten() for p in network.parameters()])


def _trained(folder: Path | None = None, kept: Keep | None = None, asked: str = "") -> tuple[Network, list[str]]:
    """Four steps, in which all taps but one break; without a folder: unwatched. Returns the names of what broke."""
    network = Network()
    optimizer = adamw(network)
    monitor, broken = None, []
    if folder is not None and kept is not None:
        settings = {"level": "deep", "every": 1, "probe_every": 1, "dense_steps": 0, "folder": folder, "serve": False}
        monitor = Monitor(network, optimizer, sinks=[kept], **settings)
    for step, batch in enumerate(loader(count=4 * BATCH), start=1):
        network(**batch)["loss"].backward()
        optimizer.step()
        optimizer.zero_grad()
        if monitor is not None:
            if step == (1 if asked in ("columns", "weights") else 3):
                broken = _break(monitor, asked)
            monitor.step()
    if monitor is not None:
        monitor.close()
    return network, broken


def _break(monitor: Monitor, asked: str) -> list[str]:
    def fail(*_: object) -> None:
        raise RuntimeError("injected")

    assert monitor._session is not None
    broken = [tap for tap in monitor._session._instruments._taps if tap.name != SPARED]
    for tap in broken:
        setattr(tap, asked, fail)
    return [tap.name for tap in broken]


@pytest.mark.parametrize("asked", ["arm", "read", "columns", "weights"])
def test_taps_that_fail_at_anything_are_each_told_once_and_the_one_that_does_not_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, asked: str
) -> None:
    kept = Keep()
    network, broken = _trained(tmp_path, kept, asked)
    assert len(broken) == 11
    assert sorted(e.detail["part"] for e in kept.events if e.kind == PART_FAILED) == sorted(broken)
    assert sum(record.levelno >= logging.ERROR for record in caplog.records) == len(broken)
    assert [snapshot.step for snapshot in kept.snapshots] == [1, 2, 3, 4]
    assert np.isfinite(kept.snapshots[-1]["grad_norm"]).all()
    assert not np.isfinite(kept.snapshots[-1]["norm_gain"]).any()
    assert kept.state == "finished"
    assert torch.equal(_parameters(network), _parameters(_trained()[0]))


def test_taps_that_cannot_be_taken_off_end_no_training_and_the_others_are_taken_off(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    kept = Keep()
    network, broken = _trained(tmp_path, kept, "detach")
    assert kept.state == "finished"
    assert sum("could not be taken off the model" in record.message for record in caplog.records) == len(broken)
    assert not any(p._post_accumulate_grad_hooks for p in network.parameters()), "those of the one that could"


@pytest.mark.parametrize("empty", [1, 3])
def test_an_empty_batch_is_read_as_nothing_and_the_next_one_as_ever(tmp_path: Path, empty: int) -> None:
    kept, network = Keep(), Network()
    optimizer = adamw(network)
    with Monitor(network, optimizer, level="deep", every=1, folder=tmp_path, serve=False, sinks=[kept]) as monitor:
        for step, batch in enumerate(loader(count=4 * BATCH), start=1):
            network(**{name: given[: 0 if step == empty else None] for name, given in batch.items()})["loss"].backward()
            optimizer.step()
            optimizer.zero_grad()
            monitor.step()
    assert [event for event in kept.events if event.kind == PART_FAILED] == []
    for statistic in ("log_z", "attention_logit_max", "attention_entropy"):
        assert np.isnan(kept.snapshots[empty - 1][statistic]).all()
        assert np.isfinite(kept.snapshots[-1][statistic]).all()
    assert len(kept.snapshots[-1]["attention_entropy"]) == 2
