"""The table for people, and its summary as Markdown."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from stabmon.bench.exact.compare import Cell
from stabmon.bench.exact.plan import PRECISIONS

_LEGEND = """\
Each cell of the large table is the power of ten of the relative error: -7 is an error of 1e-7 or less, 0 is exact to
the last bit, · is not defined there, !! is beyond its tolerance. Columns are numbered as the statistics below."""
_LABELS, _CELL, _FEWEST = 44, 3, 4
"""Characters before the cells of the large table, of each cell, and how many cells there are in any case."""
_BEGIN, _END = "<!-- table -->", "<!-- end of table -->"
_COLUMNS = (*PRECISIONS, "all")
"""The last is of estimates, all of them together."""
_TOLD = 3
"""Cells of a statistic that are told of, of those that do not agree."""


def show(console: Console, cells: Sequence[Cell], seconds: float) -> None:
    """The large table, the statistics, what does not agree, and the sum."""
    numbers = {name: number for number, name in enumerate(_unique(cells, lambda cell: cell.statistic), 1)}
    names = list(numbers)
    wide = max(_FEWEST, (console.width - _LABELS) // _CELL)
    for start in range(0, len(names), wide):
        console.print(_large(cells, names[start : start + wide], numbers))
    console.print(_LEGEND, highlight=False)
    console.print(_small(cells, numbers))
    for name in names:
        for line in _trouble([cell for cell in cells if cell.statistic == name and not cell.agrees]):
            console.print(line, highlight=False, markup=False, soft_wrap=True)
    console.print(f"{conclusion(cells)} {seconds:.0f} s.", highlight=False)


def conclusion(cells: Sequence[Cell]) -> str:
    """How many cells there are, how many agree, and which is the worst."""
    compared = [cell for cell in cells if cell.relative_error is not None]
    trainings = _unique([cell for cell in cells if cell.model != "all"], _training)
    bad = sum(not cell.agrees for cell in cells)
    worst = max(compared, key=lambda cell: (cell.relative_error or 0.0) / (cell.tolerance or 1.0))
    return (
        f"{len(cells)} cells of {len(trainings)} trainings: {len(compared)} compared, "
        f"{len(cells) - len(compared)} not defined, {bad} beyond their tolerance. Worst: {worst.relative_error:.1e} "
        f"of {worst.tolerance:.0e} allowed, {worst.statistic}, {_training(worst)}."
    )


def _trouble(bad: Sequence[Cell]) -> Iterator[str]:
    """The worst cells of one statistic, and how many more there are."""
    for cell in sorted(bad, key=lambda cell: -(cell.relative_error or 0.0))[:_TOLD]:
        error = "" if cell.relative_error is None else f"{cell.relative_error:.1e}, "
        yield f"! {cell.statistic} / {_training(cell)}: {error}{cell.note}"
    if len(bad) > _TOLD:
        yield f"! {bad[0].statistic}: and {len(bad) - _TOLD} more"


def _large(cells: Sequence[Cell], names: Sequence[str], numbers: dict[str, int]) -> Table:
    """Rows by model, under its name."""
    table = Table("model, loop", "precision", box=None, pad_edge=False, padding=(0, 1, 0, 0))
    for name in names:
        table.add_column(str(numbers[name]), justify="right", no_wrap=True)
    rows: dict[str, dict[tuple[str, str], dict[str, Cell]]] = {}
    for cell in cells:
        rows.setdefault(cell.model, {}).setdefault((cell.loop, cell.precision), {})[cell.statistic] = cell
    for model, trainings in rows.items():
        table.add_row(model)
        for (loop, precision), found in trainings.items():
            table.add_row(f"  {loop}", precision, *(_power(found[name]) if name in found else "" for name in names))
    return table


def _power(cell: Cell) -> str:
    if cell.relative_error is None:
        return "·"
    if not cell.agrees:
        return "!!"
    return "0" if cell.relative_error == 0 else str(math.ceil(math.log10(cell.relative_error)))


def _small(cells: Sequence[Cell], numbers: dict[str, int]) -> Table:
    table = Table("", "statistic", *_COLUMNS, box=None, pad_edge=False, title="worst relative error")
    for name, number in numbers.items():
        table.add_row(str(number), name, *(_worst(cells, name, precision) for precision in _COLUMNS))
    return table


def _worst(cells: Sequence[Cell], statistic: str, precision: str) -> str:
    of_both = [cell for cell in cells if (cell.statistic, cell.precision) == (statistic, precision)]
    found = [cell.relative_error for cell in of_both if cell.relative_error is not None]
    return f"{max(found):.0e}" if found else "not defined" if of_both else ""


def markdown(cells: Sequence[Cell]) -> str:
    """The worst error of each statistic in each precision, and the number of cells behind it."""
    lines = [
        f"| statistic | {' | '.join(_COLUMNS)} | cells | not defined in |",
        f"| --- | {'--- | ' * len(_COLUMNS)}--- | --- |",
    ]
    for name in _unique(cells, lambda cell: cell.statistic):
        mine = [cell for cell in cells if cell.statistic == name]
        undefined = sum(cell.relative_error is None for cell in mine)
        worst = " | ".join(_worst(cells, name, precision) for precision in _COLUMNS)
        lines.append(f"| `{name}` | {worst} | {len(mine)} | {undefined} |")
    return "\n".join((*lines, "", conclusion(cells), ""))


def write(page: Path, summary: str) -> None:
    """Put the summary between the two marks of a page.

    ValueError: it has not got them.
    """
    before, mark, rest = page.read_text(encoding="utf-8").partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not mark or not end:
        raise ValueError(
            f"{page.name} has no line {_BEGIN}; it and {_END} are to be on it, the table goes between them"
        )
    page.write_text(f"{before}{_BEGIN}\n{summary}{_END}{after}", encoding="utf-8")


def _training(cell: Cell) -> str:
    return f"{cell.model} / {cell.loop} / {cell.precision}"


def _unique(cells: Sequence[Cell], key: Callable[[Cell], str]) -> list[str]:
    return list(dict.fromkeys(key(cell) for cell in cells))
