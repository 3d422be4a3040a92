"""spaCy's table of a training: `E` is the epoch, `#` the step, and each part of the pipeline has a loss."""

from __future__ import annotations

import re
from collections.abc import Iterator

from stabmon.readers.format import Format, Head
from stabmon.readers.log import LONGEST, by_line
from stabmon.readers.reading import Asked, Reading
from stabmon.readers.rows import reader, roles
from stabmon.readers.source import Source

_HEADER = re.compile(r"^\s{0,9}E\s{2,9}#\s{2,20}LOSS .{1,2000}$", re.MULTILINE)
_BETWEEN = re.compile(r"\s{2,}")
_ROW = re.compile(r"\s{0,9}\d{1,9}\s+\d{1,15}(?:\s+[-+.\w]{1,40})+\s*")
_NAMES = {"E": "epoch", "#": "step"}


def _fits(head: Head, asked: Asked) -> bool:
    return bool(_HEADER.search(head.text))


def _readings(source: Source, head: Head, asked: Asked) -> Iterator[Reading | None]:
    header = _HEADER.search(head.text)
    assert header is not None, "it fits"
    columns = [_NAMES.get(name, name) for name in _BETWEEN.split(header[0].strip())]
    rows = [row for line in head.lines if (row := _row(line, columns))] or [dict.fromkeys(columns, "")]
    chosen = roles(rows, asked, source.notes, source.name)
    assert chosen is not None, "its header has a loss"
    read = reader(chosen)
    return by_line(source, lambda line: read(row) if (row := _row(line, columns)) else None, LONGEST)


def _row(line: str, columns: list[str]) -> dict[str, object]:
    cells = line.split() if len(line) < LONGEST and _ROW.fullmatch(line) else []
    return dict(zip(columns, cells, strict=True)) if len(cells) == len(columns) else {}


SPACY = Format("spaCy log", _fits, _readings)
