"""Where the tables go: a screen, and a Markdown page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from stabmon.bench.detection.figures import Graded
from stabmon.bench.detection.tables import Grid, grids, summary, ungraded


def show(console: Console, runs: Sequence[Graded]) -> None:
    """For people."""
    for grid in (*grids(runs), ungraded(runs)):
        if grid.rows:
            console.print(_table(grid))
            console.print(grid.note + "\n" if grid.note else "", highlight=False)
    console.print(summary(runs), highlight=False)


def write(page: Path, runs: Sequence[Graded], heading: str, picture: str | None) -> None:
    """The same as a page of its own."""
    parts = [heading, summary(runs), *(_markdown(grid) for grid in (*grids(runs), ungraded(runs)) if grid.rows)]
    if picture:
        parts.insert(2, f"![Lead of stabmon and of the rules in use, by class of failure]({picture})")
    page.write_text("\n\n".join(parts) + "\n", encoding="utf-8")


def _table(grid: Grid) -> Table:
    table = Table(*grid.columns, title=grid.title, title_justify="left", box=None, pad_edge=False, padding=(0, 1, 0, 0))
    for row in grid.rows:
        table.add_row(*row)
    return table


def _markdown(grid: Grid) -> str:
    lines = [f"## {grid.title}", "", f"| {' | '.join(grid.columns)} |", f"|{' --- |' * len(grid.columns)}"]
    lines += [f"| {' | '.join(row)} |" for row in grid.rows]
    return "\n".join((*lines, "", grid.note)).rstrip()
