"""Tables of text: commas, semicolons, tabs or spaces, a header, quotes where needed, lines of `#` above it."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from stabmon.readers.feeding import Fed, Feeding
from stabmon.readers.format import Head
from stabmon.readers.names import ROLES, loss, subject
from stabmon.readers.reading import Asked, NoRun, Notes, ReadError, Reading
from stabmon.readers.rows import Roles, Row, listed, reader, roles
from stabmon.readers.source import Source
from stabmon.readers.text import lines

_DELIMITERS = (",", "\t", ";")
_LONGEST_ROW = 1 << 20
OF_RUNS = "{} is a table of runs, one a row, and no run; give the runs themselves"
_DECIMAL = re.compile(r"(?<=\d),(?=\d+(?:[eE][-+]?\d+)?\s*(?:[;\"]|$))")
"""Semicolons part columns where the comma parts a number."""


def header(head: Head) -> tuple[list[str], str]:
    """Names of the columns and what parts them; no names where the first line is no header."""
    first = next((line for line in head.lines if line[0] != "#"), "")
    if first[:1] in "{[" or len(first) > _LONGEST_ROW:
        return [], ","
    found = max(_DELIMITERS, key=first.count)
    found = found if found in first else " "
    cells = _names(_cells(first, found), found)
    named = len(cells) > 1 and len(set(cells)) == len(cells) and not any(_numeric(cell) for cell in cells)
    return (cells if named or (len(cells) == 1 and loss(cells[0]) is not None) else []), found


def _names(cells: Sequence[str], delimiter: str) -> list[str]:
    """Of the columns: one that comes again gets a number, as pandas numbers it. Words of a text may come again."""
    bare = [cell.strip() for cell in cells]
    if delimiter == " " or len(set(bare)) == len(bare):
        return bare
    before = [bare[:place].count(cell) for place, cell in enumerate(bare)]
    return [f"{cell or 'unnamed'}.{count}" if count else cell for cell, count in zip(bare, before, strict=True)]


def _fitted(cells: list[str], columns: Sequence[str]) -> list[str]:
    """Without empty ones behind the last column, as a comma at the end of each row makes."""
    while len(cells) > len(columns) and not cells[-1].strip():
        cells = cells[:-1]
    return cells


def misfit(head: Head) -> str:
    """Why a table holds no losses, and what to do, in words; "" where it is none, or another matter."""
    columns, delimiter = header(head)
    first, *kept = [line for line in head.lines if line[0] != "#"] or [""]
    if all(_numeric(cell) for cell in _cells(first, delimiter)):
        return "it has no line that names its columns; put one first, such as step,loss"
    if not columns or not kept or delimiter == " ":
        return ""
    sizes = [len(_fitted(_cells(line, delimiter), columns)) for line in kept]
    if 2 * sizes.count(len(columns)) >= len(sizes):
        return f"its columns are {listed(columns)}; name the one of the loss, if it holds numbers, with --loss"
    if not any(ROLES[role](name) is not None for role in ("step", "epoch", "loss") for name in columns):
        return ""
    return (
        f"its first line names {len(columns)} columns, and the next has {sizes[0]}; make them as many; where commas "
        "are points of numbers, part the columns by semicolons"
    )


def head_rows(head: Head) -> list[Row]:
    """Of the head's lines, without those that are no rows."""
    columns, delimiter = header(head)
    kept = [line for line in head.lines if line[0] != "#"]
    found = (_fitted(_cells(line, delimiter), columns) for line in kept[1:])
    return [dict(zip(columns, cells, strict=True)) for cells in found if len(cells) == len(columns)]


def is_of_runs(head: Head) -> bool:
    """A row a run, with its name and what became of it: no steps, no times, and names that never come twice."""
    rows = head_rows(head)
    columns = rows[0].keys() if rows else ()
    if len(rows) < 2 or any(ROLES[role](name) is not None for role in ("step", "epoch", "time") for name in columns):
        return False
    return any(
        subject(name) and len({row[name] for row in rows}) == len(rows) and not _numeric(str(rows[0][name]))
        for name in columns
    )


def readings(source: Source, head: Head, asked: Asked) -> Iterator[Reading | None]:
    """ReadError: no column looks like a loss, or the one that was asked for is not there."""
    columns, delimiter = header(head)
    if asked.loss is None and asked.step is None and is_of_runs(head):
        raise NoRun(OF_RUNS.format(source.name))
    chosen = roles(head_rows(head) or [dict.fromkeys(columns, "")], asked, source.notes, source.name)
    if chosen is None:
        raise ReadError(f"{source.name} has no column that looks like a loss; name one with --loss: {columns}")
    source.run, source.others = chosen.read_run, chosen.others
    return read_rows(source, columns, delimiter, [reader(chosen)])


def read_rows(
    source: Source, columns: Sequence[str], delimiter: str, readers: Sequence[Callable[[Row], Reading | None]]
) -> Iterator[Reading | None]:
    """What each of `readers` makes of a row. A row with more or fewer cells, or with a word for a number, is left out
    and counted; a header that comes again is none.
    """
    spoiled, number, first, width = 0, 0, "", len(columns)
    for cells in _rows(source, delimiter):
        if cells is None:
            yield None
            continue
        number += 1
        if cells and cells[0].strip() == columns[0] and _names(cells, delimiter) == columns:
            continue
        try:
            if len(cells) != width and len(cells := _fitted(cells, columns)) != width:
                there = f"{len(cells)} cell{'' if len(cells) == 1 else 's'}"
                raise ValueError(f"it has {there}, the table {width} columns")
            row = dict(zip(columns, cells, strict=True))
            found = [made for read in readers if (made := read(row)) is not None]
        except ValueError as error:
            spoiled, first = spoiled + 1, first or f"line {number}: {error}"
            continue
        yield from found
    if spoiled:
        source.notes.say(f"{spoiled} rows were left out because they could not be read; the first is {first[:200]}.")


def given(rows: Iterable[Row], loss: str = "loss") -> Iterator[Fed]:
    """Rows that somebody holds, of a table with the columns step, `loss`, and where there are such grad_norm, lr,
    eval_loss: what the pipeline is fed of those with a loss or a gradient norm.

    ValueError: a cell that is no number; the row is named.
    """
    read = reader(Roles(loss, "step", "lr", "grad_norm", "eval_loss"))

    def readings() -> Iterator[Reading]:
        for number, row in enumerate(rows, 1):
            try:
                made = read(row)
                if made is not None and made.step is None:
                    raise ValueError("it has no step")
            except ValueError as error:
                wanted = f"give numbers in the columns step, {loss}, grad_norm, lr"
                raise ValueError(f"row {number}: {error}; {wanted}") from None
            if made is not None:
                yield made

    fed = Feeding(0.0, Notes()).feeds(readings())
    return ((snapshot, events) for snapshot, events in fed if not np.isnan(snapshot.values[:2]).all())


def _rows(source: Source, delimiter: str) -> Iterator[list[str] | None]:
    """Cells. A quote that opens and does not end is none: its lines are rows of their own."""
    open_quote = ""
    opens = re.compile(f'(?:^|{re.escape(delimiter)})\\s*"')
    for line in lines(source.chunks(), source.notes, source.follow):
        if line is None:
            yield None
            continue
        if line[0] == "#" and not open_quote:
            continue
        if delimiter == ";" and "," in line:
            line = _DECIMAL.sub(".", line)
        if not open_quote and '"' not in line:
            yield line.split() if delimiter == " " else line.split(delimiter)
            continue
        row = f"{open_quote}\n{line}" if open_quote else line
        if row.count('"') % 2 and opens.search(row):
            open_quote = row
            if len(row) < _LONGEST_ROW:
                continue
            yield from _unquoted(open_quote, delimiter, source.notes)
        else:
            yield _cells(row, delimiter)
        open_quote = ""
    yield from _unquoted(open_quote, delimiter, source.notes)


def _unquoted(held: str, delimiter: str, notes: Notes) -> Iterator[list[str]]:
    if held:
        notes.say(f"A quote in {held[:60].splitlines()[0]!r} does not end; it was taken for none.")
    yield from (_cells(line, delimiter) for line in held.splitlines())


def _cells(row: str, delimiter: str) -> list[str]:
    if '"' not in row:
        return row.split() if delimiter == " " else row.split(delimiter)
    try:
        return next(csv.reader([row], delimiter=delimiter), [])
    except csv.Error:
        return []


def _numeric(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
