"""What ranks that train copies of one model have in common, without processes: their vectors are added up here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from stabmon.records import Site
from stabmon.taps.ranks.packing import Packing, Row
from stabmon.taps.ranks.sharding import twins
from stabmon.taps.ranks.union import Column, Local, unite

CPU, NAN, INF = torch.device("cpu"), float("nan"), float("inf")
LAYOUT = Local(
    (
        Column("loss", Site(""), "mean", 0),
        Column("activation_max", Site("n"), "max", 1),
        Column("weight_sq", Site("a"), "mean", 1),
        Column("weight_sq", Site("b"), "part", 1),
        Column("grad_sq", Site("a"), "mean", 1),
    ),
    taps=2,
)


def compared(
    rows: list[list[float]], failed: list[list[float]] | None = None, layout: Local = LAYOUT
) -> dict[str, float]:
    """By statistic, the last site's: what rank 0 tells of ranks with these values, float[rank][column of LAYOUT]."""
    union, total = unite([layout]), torch.zeros(())
    for rank, row in enumerate(rows):
        packing = Packing(union, 0, rank, len(rows), CPU)
        flags = torch.tensor(failed[rank] if failed else [0.0, 0.0])
        total = total + packing.vector(Row(torch.tensor(row), torch.ones(5), flags, torch.zeros(0)))
    found = zip(packing.between.columns, packing.compared(total).tolist(), strict=True)
    return {statistic: value for (statistic, _), value in found}


def row(loss: float = 2.0, weights: float = 3.0, gradients: float = 1.0) -> list[float]:
    return [loss, 7.0, weights, 5.0, gradients]


def test_equal_copies_are_0_apart_bit_for_bit() -> None:
    third = float(np.float32(1 / 3))
    found = compared([row(weights=third, gradients=1e-12)] * 7)
    assert (found["rank_weight_spread"], found["rank_grad_spread"], found["rank_loss_spread"]) == (0, 0, 0)
    assert (found["ranks_read"], found["ranks_lost"]) == (7, 0)


def test_the_last_bit_of_one_rank_among_many_is_seen() -> None:
    rows = [row(weights=1.0)] * 63 + [row(weights=float(np.nextafter(np.float32(1), np.float32(2))))]
    assert compared(rows)["rank_weight_spread"] == pytest.approx(2.0**-23, rel=1e-6)


def test_the_spread_is_highest_less_lowest_over_the_highest() -> None:
    found = compared([row(loss=2.0, gradients=4.0), row(loss=5.0, gradients=1.0), row(loss=3.0, gradients=3.0)])
    assert found["rank_loss_spread"] == pytest.approx((5 - 2) / 5)
    assert found["rank_grad_spread"] == pytest.approx((4 - 1) / 4)
    assert found["rank_loss_highest"] == 1


def test_a_negative_loss_is_compared_by_its_size() -> None:
    found = compared([row(loss=-4.0), row(loss=-3.0)])
    assert found["rank_loss_spread"] == pytest.approx(1 / 4)
    assert found["rank_loss_highest"] == 1


def test_who_read_nothing_is_left_out_and_one_alone_is_compared_with_nobody() -> None:
    found = compared([row(), row(weights=NAN), row(weights=4.0)])
    assert found["rank_weight_spread"] == pytest.approx(1 / 4)
    assert np.isnan(compared([row(), row(weights=NAN)])["rank_weight_spread"])


def test_what_is_not_finite_on_one_rank_is_infinitely_apart_and_that_rank_is_named() -> None:
    found = compared([row(), row(), row(loss=INF)])
    assert (found["rank_loss_spread"], found["rank_loss_highest"]) == (INF, 2)


def test_a_rank_counts_as_lost_once_one_of_its_taps_has_failed() -> None:
    found = compared([row(), row(), row()], failed=[[0, 0], [1, 0], [1, 1]])
    assert (found["ranks_read"], found["ranks_lost"]) == (1, 2)


def test_parts_and_maxima_are_not_compared() -> None:
    columns = Packing(unite([LAYOUT]), 0, 0, 2, CPU).between.columns
    assert [c for c in columns if c[1].name] == [("rank_weight_spread", Site("a")), ("rank_grad_spread", Site("a"))]


def test_ranks_that_were_not_put_together_tell_nothing_of_each_other() -> None:
    assert Packing(unite([LAYOUT]), 0, 0, 2, CPU).compared(None).isnan().all()


def sharded(part: float) -> list[float]:
    return [2.0, 7.0, 3.0, part, 1.0]


def test_parts_are_compared_between_the_ranks_that_hold_the_same_one() -> None:
    """Four ranks, two parts: 0 and 2 hold one, 1 and 3 the other."""
    layout = replace(LAYOUT, twins=(0, 1, 0, 1))
    same = compared([sharded(p) for p in (5.0, 8.0, 5.0, 8.0)], layout=layout)
    other = compared([sharded(p) for p in (5.0, 8.0, 5.0, 6.0)], layout=layout)
    half = compared([sharded(p) for p in (5.0, 8.0, NAN, 8.0)], layout=layout)
    none = compared([sharded(p) for p in (5.0, 8.0, NAN, NAN)], layout=layout)
    spreads = [found["rank_weight_spread"] for found in (same, other, half, none)]
    assert spreads[:3] == [0.0, 0.25, 0.0]
    assert np.isnan(spreads[3])


def test_where_every_rank_holds_another_part_there_is_nothing_to_compare() -> None:
    columns = Packing(unite([replace(LAYOUT, twins=(0, 1))]), 0, 0, 2, CPU).between.columns
    assert ("rank_weight_spread", Site("b")) not in columns


class Hashed(SimpleNamespace):
    __hash__ = object.__hash__  # type: ignore[assignment]


class Placed:
    """A tensor spread over a mesh of ranks; `cut`: the mesh's dimensions along which it is."""

    def __init__(self, mesh: list[Any], cut: Sequence[bool]) -> None:
        ranks = torch.tensor(mesh)
        self.device_mesh = MESHES.setdefault(str(mesh), Hashed(mesh=ranks, ndim=ranks.ndim, size=ranks.size))
        self.placements = [SimpleNamespace(is_replicate=lambda kind=kind: not kind) for kind in cut]


MESHES: dict[str, Any] = {}


@pytest.mark.parametrize(
    ("mesh", "cuts", "expected"),
    [
        ([[0, 1], [2, 3]], [(False, True)], (0, 1, 0, 1)),
        ([[0, 1], [2, 3]], [(True, False)], (0, 0, 2, 2)),
        ([[0, 2], [1, 3]], [(False, True)], (0, 0, 2, 2)),
        ([[0, 1], [2, 3]], [(True, True)], (0, 1, 2, 3)),
        ([[0, 1], [2, 3]], [(False, True), (True, True)], ()),
        ([0, 1], [(True,)], ()),
    ],
    ids=["hsdp", "the other way round", "ranks in another order", "sharded twice", "not all alike", "not all ranks"],
)
def test_ranks_that_hold_the_same_part_have_the_same_number(
    monkeypatch: pytest.MonkeyPatch, mesh: list[Any], cuts: Any, expected: tuple[int, ...]
) -> None:
    monkeypatch.setattr("torch.distributed.get_world_size", lambda: 4)
    tensors: Any = [Placed(mesh, cut) for cut in cuts]
    assert twins(tensors) == expected


def test_a_model_that_is_not_spread_has_no_parts() -> None:
    assert twins([torch.zeros(3)]) == ()


@pytest.mark.parametrize("seed", range(5))
def test_it_is_what_numpy_says_of_the_ranks_values(seed: int) -> None:
    rng: Any = np.random.default_rng(seed)
    values = rng.normal(3, 1, (6, 5)).astype(np.float32)
    found = compared(values.tolist())
    for statistic, column in (("rank_loss_spread", 0), ("rank_weight_spread", 2), ("rank_grad_spread", 4)):
        of = values[:, column].astype(float)
        assert found[statistic] == pytest.approx((of.max() - of.min()) / np.abs(of).max(), rel=1e-6)
    assert found["rank_loss_highest"] == values[:, 0].argmax()
