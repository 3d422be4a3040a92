"""Precisions, accumulation, clipping, checkpointing: the numbers of a naive reader, and the training that it was."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
import torch

from tests.loops.decoder import Decoder
from tests.loops.recipe import Recipe
from tests.loops.witness import assert_read_right, both

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
