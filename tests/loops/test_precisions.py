"""Precisions, accumulation, clipping, checkpointing: the numbers of a naive reader, and the training that it was."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from stabmon.records import Snapshot
from tests.loops.decoder import Decoder, batches, loss_of
from tests.loops.recipe import STEPS, Recipe, adamw
from tests.loops.witness import Watched, assert_read_right, both, seed

CELLS = {
    "float32": Recipe(),
    "float64": Recipe(dtype=torch.float64),
    "bfloat16": Recipe(dtype=torch.bfloat16),
    "bfloat16 autocast": Recipe(autocast=torch.bfloat16),
    "float16 autocast": Recipe(autocast=torch.float16),
    "float16 autocast, scaled": Recipe(autocast=torch.float16, scale=256.0),
    "scaled, clipped by norm": Recipe(scale=1024.0, clip="norm"),
    "clipped by norm": Recipe(clip="norm"),
    "clipped by value": Recipe(clip="value"),
    "accumulated": Recipe(accumulate=3),
    "accumulated, sum, ragged": Recipe(accumulate=3, ragged=True, reduction="sum"),
    "accumulated, mean, ragged, scaled, clipped": Recipe(accumulate=3, ragged=True, scale=64.0, clip="norm"),
    "re-entrant checkpoints": Recipe(model=partial(Decoder, reentrant=True)),
    "checkpoints": Recipe(model=partial(Decoder, reentrant=False)),
    "checkpoints, bfloat16 autocast, accumulated": Recipe(
        model=partial(Decoder, reentrant=False), autocast=torch.bfloat16, accumulate=2
    ),
    "tied": Recipe(model=partial(Decoder, tied=True)),
}


@pytest.mark.parametrize("cell", CELLS)
def test_numbers_are_a_naive_readers_and_the_training_is_the_same_bit_for_bit(tmp_path: Path, cell: str) -> None:
    assert_read_right(both(CELLS[cell], tmp_path))


@pytest.mark.parametrize("default", [torch.float64, torch.bfloat16])
def test_no_number_depends_on_the_type_that_new_tensors_have(tmp_path: Path, default: torch.dtype) -> None:
    plain, other = (deeply_read(tmp_path / str(kind), kind) for kind in (torch.float32, default))
    for one, two in zip(plain, other, strict=True):
        assert one.layout == two.layout
        named = zip(one.layout.columns, one.values, two.values, strict=True)
        assert [c for c, a, b in named if not np.array_equal(a, b, equal_nan=True) and "seconds" not in c[0]] == []


def deeply_read(folder: Path, default: torch.dtype) -> list[Snapshot]:
    """A training in float32; `default`: what torch takes where no type is given."""
    seed()
    model, data = Decoder(), list(batches(STEPS))
    (optimizer,) = adamw(model)
    torch.set_default_dtype(default)
    try:
        watched = Watched(folder, model, [optimizer], level="deep")
        for inputs, targets in data:
            loss = loss_of(model, inputs, targets)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            watched.step(loss, targets)
        watched.monitor.close()
    finally:
        torch.set_default_dtype(torch.float32)
    return watched.kept.snapshots
