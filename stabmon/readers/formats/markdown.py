"""The first table of a Markdown page that has a column of losses, as Hugging Face's model cards have it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

from stabmon.readers import names
from stabmon.readers.format import Format, Head
from stabmon.readers.log import LONGEST, by_line
from stabmon.readers.reading import Asked, Reading
from stabmon.readers.rows import reader, roles
from stabmon.readers.source import Source

_RULE = re.compile(r"\s{0,9}\|(?:[ ]{0,99}:?-{1,999}:?[ ]{0,99}\|){2,999}\s*")
_NOTHING = {"no log", "-", "n/a"}
"""What stands where there was no loss yet."""
_Row = dict[str, object]


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")] if line.lstrip()[:1] == "|" else []


def _columns(head: Head, asked: Asked) -> list[str]:
    for above, line in pairwise(head.lines):
        if len(line) < LONGEST and _RULE.fullmatch(line):
            found = _cells(above)
            if len(set(found)) == len(found) and any(names.loss(n) is not None or n == asked.loss for n in found):
                return found
    return []


def _fits(head: Head, asked: Asked) -> bool:
    return bool(_columns(head, asked))


class _Table:
    """Its rows: those from its header to the next line that is none."""

    def __init__(self, columns: list[str]) -> None:
        self._columns = columns
        self._open = self._over = False

    def row(self, line: str) -> _Row | None:
        cells = [] if self._over else _cells(line)
        if cells == self._columns:
            self._open = True
        elif self._open and not cells:
            self._over = True
        elif self._open and len(cells) == len(self._columns) and not _RULE.fullmatch(line):
            told = ("" if cell.lower() in _NOTHING else cell for cell in cells)
            return dict(zip(self._columns, told, strict=True))
        return None


def _readings(source: Source, head: Head, asked: Asked) -> Iterator[Reading | None]:
    columns = _columns(head, asked)
    first = _Table(columns)
    rows = [row for line in head.lines if (row := first.row(line)) is not None]
    chosen = roles(rows or [dict.fromkeys(columns, "")], asked, source.notes, source.name)
    assert chosen is not None, "it has a column of losses"
    table, read = _Table(columns), reader(chosen)

    def parse(line: str) -> Reading | None:
        row = table.row(line)
        return None if row is None else read(row)

    return by_line(source, parse, LONGEST)


MARKDOWN = Format("Markdown table", _fits, _readings)
