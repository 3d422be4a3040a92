"""What of a step's targets and inputs goes to the host for the baseline losses, and what it is found to be there.

Shapes: B samples, T tokens, F features.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isqrt
from typing import Any

import numpy as np
import torch
from torch import Tensor

from stabmon.taps.ranks.sharding import local

MAX_TARGETS = 4096
"""Targets looked at per step: whole sequences, as many as fit, the last ones."""
MAX_FEATURES = 64
_AGREE = 0.9
"""Share of targets that are the model's own next inputs, from which on it is a language model; and, of the places that
hold one token, share that are targets, from which on it is the mask."""
_HIDDEN = 0.5
"""Share of masked text's targets whose input is the mask, at least: BERT leaves a tenth as they are and replaces a
tenth."""
_FEW = 2
"""Targets a row; a row with fewer is rather a question that ends in a mask."""
_SIDE, _LENGTH = 32, 4096
"""Of pictures at most so many pixels a side are looked at, of other examples so many numbers, evenly spaced."""

ALONE, UNMOVED, NEXT = 0, 1, 2
"""What targets are to what the model is given: something else, the same tokens, or those one further on."""
NO_INPUT = ("mask", "type_ids", "position", "labels")
"""In names of what is no token, and no example."""

Host = np.ndarray[Any, Any]


def unflattened(targets: Tensor, inputs: Sequence[Tensor]) -> Tensor:
    """Targets [B*T] of a language model as [B, T]."""
    shapes = (ids.shape for ids in inputs if targets.ndim == 1 and ids.numel() == targets.numel() and ids.shape[1] > 1)
    shape = next(shapes, None)
    return targets if shape is None else targets.reshape(shape)


def last(targets: Tensor) -> Tensor:
    """Of sequences [..., T] the last rows, int[rows, T], as many as may be looked at; of a longer one its start."""
    rows = targets.reshape(-1, targets.shape[-1])
    return rows[-max(MAX_TARGETS // rows.shape[-1], 1) :, :MAX_TARGETS]


def beside(targets: Tensor, inputs: Sequence[Tensor]) -> list[tuple[Tensor, Tensor]]:
    """(inputs, targets) of the same places, as many as may be looked at, for each of the inputs that have as many a
    row. Of several micro-batches the inputs are those of the last one."""
    if targets.ndim != 2:
        return []
    alike = [(ids, min(len(ids), len(targets))) for ids in inputs if ids.shape[1] == targets.shape[1]]
    return [
        (last(ids[-rows:]).to(targets.device, non_blocking=True), last(targets[-rows:])) for ids, rows in alike if rows
    ]


def follows(given: Tensor, wanted: Tensor) -> Tensor:
    """Scalar: NEXT, UNMOVED or ALONE, of targets [B, T]."""
    return torch.where(agree(given[:, 1:], wanted[:, :-1]), NEXT, torch.where(agree(given, wanted), UNMOVED, ALONE))


def agree(given: Tensor, wanted: Tensor) -> Tensor:
    """Scalar bool: whether nearly all targets that count are those tokens."""
    counted = wanted >= 0
    return ((given == wanted) & counted).sum() >= _AGREE * counted.sum().clamp(min=1)


def marked(targets: Tensor, found: Tensor | int) -> Tensor:
    """With one row more, of what `follows` found, not 0 where neighbours belong together: what is not known on the host
    travels along."""
    mark = torch.zeros_like(targets[:1]) + found
    return torch.cat((targets, mark.to(targets.dtype)))


def is_masked_text(targets: Host, inputs: Host) -> bool:
    """Whether the inputs hold one token in most places of the targets, and hardly ever elsewhere: it hides them."""
    wanted = targets >= 0
    if wanted.all() or wanted.sum() < _FEW * len(targets):
        return False
    tokens, counts = np.unique(inputs[wanted], return_counts=True)
    holds = inputs == tokens[counts.argmax()]
    hidden = (holds & wanted).sum()
    return bool(hidden >= _HIDDEN * wanted.sum() and hidden >= _AGREE * holds.sum())


def features(examples: Tensor, rows: int) -> Tensor:
    """At most 64 numbers of each of the last `rows` examples [B, ...], float32[rows, F]: means over parts of a picture
    [B, channels, height, width], else over pieces of equal length. Of large examples only some numbers are read."""
    chosen = local(examples.detach())[-rows:]
    if chosen.ndim == 4 and 1 <= chosen.shape[1] <= MAX_FEATURES:
        return _of_pictures(chosen)
    flat = chosen.flatten(1)
    flat = flat[:, :: -(-flat.shape[1] // _LENGTH)].float()
    if flat.shape[1] <= MAX_FEATURES:
        return flat
    size = flat.shape[1] // MAX_FEATURES
    means: Tensor = flat[:, : size * MAX_FEATURES].unflatten(1, (MAX_FEATURES, size)).mean(2)
    return means


def _of_pictures(pictures: Tensor) -> Tensor:
    tall, wide = (-(-side // _SIDE) for side in pictures.shape[2:])
    few = pictures[:, :, ::tall, ::wide].float()
    parts = isqrt(MAX_FEATURES // few.shape[1])
    for axis in (2, 3):
        size = max(few.shape[axis] // parts, 1)
        count = min(few.shape[axis] // size, parts)
        few = few.narrow(axis, 0, size * count).unflatten(axis, (count, size)).mean(axis + 1)
    return few.flatten(1)
