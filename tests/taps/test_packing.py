"""Rows of ranks in one vector, without processes: the sum of the vectors is taken here."""

from __future__ import annotations

import torch
from torch import Tensor

from stabmon.records import Site
from stabmon.taps.ranks.packing import Packing, Row
from stabmon.taps.ranks.union import Column, How, Local, unite

CPU, NAN, INF = torch.device("cpu"), float("nan"), float("inf")


def local(*hows: How, unsummed: tuple[tuple[int, int], ...] = ()) -> Local:
    names: dict[How, str] = {"mean": "norm_gain", "part": "grad_sq", "sum": "grad_sq", "max": "activation_max"}
    columns = [Column(names[how], Site(f"site{i}"), how, 0) for i, how in enumerate(hows)]
    return Local(tuple(columns), (), unsummed, taps=1)


def together(
    layout: Local, rows: list[list[float]], weights: list[list[float]], failed: list[float] | None = None
) -> Tensor:
    union = unite([layout])
    total = torch.zeros(())
    for rank, (row, weight) in enumerate(zip(rows, weights, strict=True)):
        packing = Packing(union, 0, rank, len(rows), CPU)
        flags = torch.tensor([failed[rank] if failed else 0.0])
        total = total + packing.vector(Row(torch.tensor(row), torch.tensor(weight), flags, torch.zeros(0)))
    return packing.of_sum(total)[0]


def test_a_mean_is_weighted_and_leaves_out_who_did_not_read() -> None:
    found = together(local("mean", "mean"), [[1.0, NAN], [4.0, 3.0]], [[10.0, 5.0], [30.0, 7.0]])
    assert found.tolist() == [3.25, 3.0]


def test_what_nobody_read_is_nan_and_what_one_found_not_finite_is_inf() -> None:
    found = together(local("mean", "mean", "max"), [[NAN, INF, NAN], [NAN, 1.0, NAN]], [[1.0] * 3] * 2)
    assert found.isnan().tolist() == [True, False, True]
    assert found[1] == INF


def test_a_value_without_weight_does_not_count_even_where_it_is_not_finite() -> None:
    assert together(local("mean"), [[INF], [2.0]], [[0.0], [1.0]]).tolist() == [2.0]


def test_a_maximum_may_be_negative_zero_or_inf_and_is_exact() -> None:
    third = float(torch.tensor(1 / 3))
    rows = [[-5.0, 0.0, INF, third], [-2.0, NAN, 1.0, 0.1]]
    assert together(local(*["max"] * 4), rows, [[1.0] * 4] * 2).tolist() == [-2.0, 0.0, INF, third]  # type: ignore[list-item]


def test_a_sum_over_data_adds_up_whatever_it_weighs() -> None:
    assert together(local("sum"), [[3.0], [4.0]], [[2.0], [9.0]]).tolist() == [7.0]


def test_parts_are_not_told_when_a_rank_has_lost_its_part() -> None:
    rows, weights = [[6.0, 1.0], [NAN, NAN]], [[1.0, 1.0]] * 2
    found = together(local("part", "mean"), rows, weights, failed=[0.0, 1.0])
    assert found[0].isnan()
    assert found[1] == 1.0


def test_what_ranks_have_yet_to_add_up_is_squared_after_it_is_added() -> None:
    layout = local("part", "part", unsummed=((1, 2),))
    union = unite([layout])
    parts = torch.tensor([[3.0, -1.0], [-2.0, 5.0]])
    vectors = []
    for rank, part in enumerate(parts):
        packing = Packing(union, 0, rank, 2, CPU)
        x = 2 * part  # two summands each
        row = Row(torch.tensor([1.0, 10.0]), torch.ones(2), torch.zeros(1), x * x.abs())
        vectors.append(packing.vector(row))
    found, _ = packing.of_sum(torch.stack(vectors).sum(0))
    torch.testing.assert_close(found, torch.tensor([1.0, 10.0 + 1.0**2 + 4.0**2]))


def test_a_rank_alone_does_not_tell_what_it_has_a_part_of() -> None:
    layout = local("part", "mean")
    found = Packing(unite([layout]), 0, 0, 2, CPU).alone(torch.tensor([6.0, 1.0]))
    assert found[0].isnan()
    assert found[1] == 1.0


def test_a_rank_that_reads_nothing_more_says_that_all_of_its_taps_have_failed() -> None:
    union = unite([local("mean", "max")])
    first, second = (Packing(union, layout, rank, 2, CPU) for rank, layout in enumerate((0, None)))
    row = Row(torch.tensor([2.0, 5.0]), torch.ones(2), torch.zeros(1), torch.zeros(0))
    found, failed = first.of_sum(first.vector(row) + second.vector(second.nothing()))
    assert (found.tolist(), failed.tolist()) == ([2.0, 5.0], [1.0])
