"""Layouts of stages, put together."""

from __future__ import annotations

import torch

from stabmon.records import Site
from stabmon.taps.ranks.packing import Packing, Row
from stabmon.taps.ranks.union import Column, How, Local, unite


def stage(blocks: list[str], outside: dict[str, int | None], total: bool = True) -> Local:
    """Gradients of blocks and of what is outside of them (name -> layer), a loss, the total."""
    sites = [Site(name, i, "block") for i, name in enumerate(blocks)]
    before = [Site(name, layer) for name, layer in outside.items() if layer is None and name == "embedding"]
    after = [Site(name, layer) for name, layer in outside.items() if name != "embedding"]
    whole: list[tuple[str, How]] = [("loss", "mean"), ("total_grad_sq", "mean")]
    columns = [Column(statistic, Site(""), how, 0) for statistic, how in whole]
    columns += [Column("grad_sq", site, "mean", 1) for site in (*before, *sites, *after)]
    return Local(tuple(columns), tuple(blocks), taps=2)


def names(layouts: list[Local]) -> list[tuple[str, int | None]]:
    return [(c.site.name, c.site.layer) for c in unite(layouts).columns if c.statistic == "grad_sq"]


def test_one_layout_stays_as_it_is() -> None:
    one = stage(["b.0", "b.1"], {"embedding": None, "ln_f": 1})
    union = unite([one])
    assert union.columns == one.columns
    assert union.slots == (tuple(range(len(one.columns))),)


def test_layers_are_numbered_through_the_stages() -> None:
    layouts = [stage(["b.0", "b.1"], {"embedding": None}), stage(["b.2", "b.3"], {"ln_f": 1, "head": None})]
    expected = [("embedding", None), ("b.0", 0), ("b.1", 1), ("b.2", 2), ("b.3", 3), ("ln_f", 3), ("head", None)]
    assert names(layouts) == expected


def test_interleaved_stages_are_ordered_by_the_numbers_in_their_names() -> None:
    layouts = [stage(["b.0", "b.10"], {"embedding": None}), stage(["b.2", "b.11"], {"ln_f": 1})]
    assert names(layouts) == [("embedding", None), ("b.0", 0), ("b.2", 1), ("b.10", 2), ("b.11", 3), ("ln_f", 3)]


def test_stacks_of_other_names_follow_each_other_as_the_ranks_do() -> None:
    layouts = [stage(["encoder.0", "encoder.1"], {}), stage(["decoder.0"], {})]
    assert names(layouts) == [("encoder.0", 0), ("encoder.1", 1), ("decoder.0", 2)]


def test_the_last_stage_speaks_for_the_whole_model_and_the_total_is_over_all_stages() -> None:
    union = unite([stage(["b.0"], {}), stage(["b.1"], {})])
    rows = [[7.0, 2.0, 2.0], [1.5, 5.0, 5.0]]
    total = torch.zeros(())
    for rank, row in enumerate(rows):
        packing = Packing(union, rank, rank, 2, torch.device("cpu"))
        total = total + packing.vector(Row(torch.tensor(row), torch.ones(3), torch.zeros(2), torch.zeros(0)))
    found, _ = packing.of_sum(total)
    values = {(c.statistic, c.site.name): v for c, v in zip(union.columns, found.tolist(), strict=True)}
    assert values == {("loss", ""): 1.5, ("total_grad_sq", ""): 7.0, ("grad_sq", "b.0"): 2.0, ("grad_sq", "b.1"): 5.0}


def test_a_first_stage_alone_tells_its_own_layers_only() -> None:
    union = unite([stage(["b.0"], {}), stage(["b.1"], {})])
    found = Packing(union, 0, 0, 2, torch.device("cpu")).alone(torch.tensor([7.0, 2.0, 2.0]))
    read = {(c.statistic, c.site.name): v for c, v in zip(union.columns, found.tolist(), strict=True) if v == v}
    assert read == {("grad_sq", "b.0"): 2.0}
