"""Targets without baselines: told once where the network predicts classes, never where it predicts numbers."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from stabmon.taps.baselines import Baselines
from stabmon.taps.forward import Forward
from stabmon.taps.notices import Notices

B, T, V = 8, 32, 16


class Returns(nn.Module):
    """Has a norm and a parameter, and returns what it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(4)

    def forward(self, output: Any) -> Any:
        return output


def said(output: Any, targets: Tensor, steps: int = 3) -> tuple[list[str], Any]:
    """What was told, "why todo", and the last step's baselines, float32[4]."""
    model, notices = Returns(), Notices()
    forward = Forward(model, ["norm"], pytest.fail)
    baselines = Baselines(forward, notices)
    for _ in range(steps):
        model(output)
        found = baselines.score([tensor.numpy() for tensor in baselines.targets(targets)])
    forward.detach()
    return [f"{notice['why']} {notice['todo']}" for notice in notices.take()], found


def classes(*shape: int, count: int = V) -> Tensor:
    return torch.randint(count, shape, generator=torch.Generator().manual_seed(0))


WORDS, PICTURES = torch.zeros(B, T, V), torch.zeros(B, V)


@pytest.mark.parametrize(
    ("output", "targets", "shape"),
    [
        (WORDS, F.one_hot(classes(B, T), V).float(), "float32 and shape [8, 32, 16]"),
        (WORDS, F.one_hot(classes(B, T), V), "int64 and shape [8, 32, 16]"),
        (WORDS, F.one_hot(classes(B * T), V).bfloat16(), "bfloat16 and shape [256, 16]"),
        (PICTURES, F.one_hot(classes(B), V).float(), "float32 and shape [8, 16]"),
        (PICTURES, F.one_hot(classes(B), V), "int64 and shape [8, 16]"),
        (PICTURES, torch.rand(B, V).softmax(-1).half(), "float16 and shape [8, 16]"),
        ({"logits": torch.zeros(B, 100)}, torch.randn(B, 100), "float32 and shape [8, 100]"),
    ],
    ids=["words", "whole numbers", "flattened", "pictures", "of pictures", "shares", "a teacher's logits"],
)
def test_a_share_of_each_class_is_told_once_and_has_no_baselines(output: Any, targets: Tensor, shape: str) -> None:
    told, found = said(output, targets)
    assert told == [
        f"Targets of {shape} are no class ids, so no baseline losses are told, and a stall is warned of but never "
        "called critical. Give step class ids as whole numbers: targets=targets.argmax(-1)."
    ]
    assert np.isnan(found).all()


@pytest.mark.parametrize(
    ("output", "targets"),
    [
        (WORDS, classes(B, T).float()),
        (PICTURES, classes(B).double()),
        (torch.zeros(B, 1), classes(B, 1, count=2) + 0.0),
    ],
    ids=["words", "pictures", "two classes"],
)
def test_class_ids_in_floating_point_are_told(output: Tensor, targets: Tensor) -> None:
    told, found = said(output, targets)
    assert len(told) == 1
    assert "class ids in floating point" in told[0]
    assert told[0].endswith("targets=targets.long().")
    assert np.isnan(found).all()


@pytest.mark.parametrize(
    ("output", "targets"),
    [
        (WORDS, torch.randn(B, T, V)),
        (PICTURES, torch.randn(B, V)),
        (PICTURES, torch.rand(B, V).round()),
        (torch.zeros(B, 1), torch.randn(B)),
        (torch.zeros(B, 1), 10 * torch.rand(B, 1).round()),
        (torch.zeros(B, 3, 4, 4), torch.randn(B, 3, 4, 4)),
        ({"logits": torch.zeros(B, 3)}, torch.randn(B, 3)),
        (PICTURES, torch.randn(B, 5)),
        (PICTURES, torch.randn(0)),
    ],
    ids=["of tokens", "of pictures", "labels", "one", "tens", "pictures", "few logits", "other", "none"],
)
def test_numbers_to_regress_on_and_several_labels_at_once_are_not_told_of(output: Any, targets: Tensor) -> None:
    assert said(output, targets)[0] == []


def test_numbers_are_looked_at_in_one_step_alone() -> None:
    model = Returns()
    baselines = Baselines(Forward(model, ["norm"], pytest.fail))
    model(PICTURES)
    assert [len(baselines.targets(torch.randn(B, V))) for _ in range(3)] == [1, 0, 0]


def test_targets_that_cannot_be_the_outputs_are_told_at_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "stabmon")
    told, found = said(WORDS, classes(3, 5))
    assert told == [
        "Targets of int64 and shape [3, 5] cannot be those of an output of shape [8, 32, 16]. Give step class ids of "
        "shape [8, 32]."
    ]
    assert len(caplog.records) == 1
    assert np.isfinite(found[1]), "they are counted as they are"


@pytest.mark.parametrize(
    "shape",
    [(B, T), (B * T,), (T, B), (B,), (3 * B, T), (B, T - 1), (B, 1), (77,), (B + 3, T + 1)],
    ids=["all", "flat", "turned", "one each", "micro-batches", "shifted", "columns", "those that count", "more rows"],
)
def test_targets_that_may_be_the_outputs_are_not_told_of(shape: tuple[int, ...]) -> None:
    assert said(WORDS, classes(*shape))[0] == []


def test_labels_of_every_class_are_counted() -> None:
    """Of several classes at once: they have the output's shape, and are not one-hot."""
    told, found = said(PICTURES, classes(B, V, count=2))
    assert told == []
    assert np.isfinite(found[1])
