"""Keras: `json.dump(history.history)`, a list a metric with a number an epoch."""

import json
import re
from collections.abc import Iterator

from stabmon.readers import names
from stabmon.readers.format import Format, Head
from stabmon.readers.reading import Asked, ReadError, Reading
from stabmon.readers.rows import reader, roles
from stabmon.readers.source import Source
from stabmon.readers.text import LONGEST, decoded

_BEGINNING = re.compile(r'\A\s*\{\s*"[^"\n]{1,80}"\s*:\s*\[\s*[-\d.NI]')
_LIST = re.compile(r'"([^"\\\n]{1,80})"\s*:\s*\[\s*[-\d.NI]')
_EPOCH = "epoch"


def _fits(head: Head, asked: Asked) -> bool:
    return bool(_BEGINNING.match(head.document)) and any(
        names.loss(name) is not None for name in _LIST.findall(head.document)
    )


def _readings(source: Source, head: Head, asked: Asked) -> Iterator[Reading | None]:
    rows = list(_rows(source))
    chosen = roles(rows, asked, source.notes, source.name)
    if chosen is None:
        raise ReadError(f"{source.name} has no list that looks like a loss; name one with --loss")
    yield from map(reader(chosen), rows)


def _rows(source: Source) -> Iterator[dict[str, object]]:
    """One an epoch. ReadError: it is longer than any history is, or not whole."""
    text = ""
    for piece in decoded(source.chunks()):
        text += piece
        if len(text) > LONGEST:
            raise ReadError(f"{source.name} looks like a history of Keras, but is longer than any")
    try:
        lists = {name: cells for name, cells in json.loads(text.lstrip("\ufeff")).items() if isinstance(cells, list)}
    except (ValueError, RecursionError):
        raise ReadError(f"{source.name} looks like a history of Keras, but is cut off or damaged") from None
    lists.setdefault(_EPOCH, list(range(1, 1 + max(map(len, lists.values())))))
    for i in range(max(map(len, lists.values()))):
        yield {name: cells[i] for name, cells in lists.items() if i < len(cells)}


KERAS_HISTORY = Format("Keras history", _fits, _readings, document=True)
