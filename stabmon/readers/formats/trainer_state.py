"""Hugging Face's trainer_state.json, of any version and of trainers built on it (TRL)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain, islice

from stabmon.readers import json_stream
from stabmon.readers.format import Format, Head
from stabmon.readers.reading import Asked, ReadError, Reading
from stabmon.readers.rows import reader, roles
from stabmon.readers.source import Source

_OPENING = re.compile(r'"log_history"\s{0,50}:\s{0,50}\[')
_FEW = 200
EMPTY = "nothing was logged, or it is cut off before the end of the first; train with logging_steps"


def _fits(head: Head, asked: Asked) -> bool:
    return head.raw.lstrip(b"\xef\xbb\xbf\xff\xfe \r\n\t\0")[:1] == b"{" and bool(_OPENING.search(head.document))


def _readings(source: Source, head: Head, asked: Asked) -> Iterator[Reading | None]:
    yield from read_objects(source, json_stream.objects(source, _OPENING), asked)


def read_objects(source: Source, found: Iterator[dict[str, object]], asked: Asked) -> Iterator[Reading | None]:
    """Rows of a JSON array; an entry that cannot be read is counted."""
    first = list(islice(found, _FEW))
    if not first:
        raise ReadError(f"{source.name} has no whole entry: {EMPTY}")
    chosen = roles(first, asked, source.notes, source.name)
    if chosen is None:
        raise ReadError(f"{source.name} has no loss among its {len(first)} first entries; train with logging_steps")
    if not any(key in row for row in first for key in ("loss", "eval_loss")) and chosen.loss == "train_loss":
        source.notes.say("It holds only the mean loss of the whole training; train with a smaller logging_steps.")
    read, spoiled = reader(chosen), 0
    for row in chain(first, found):
        try:
            made = read(row)
        except ValueError:
            spoiled += 1
            continue
        if made is not None:
            yield made
    if spoiled:
        source.notes.say(f"{spoiled} entries were left out because they could not be read.")


TRAINER_STATE = Format("Hugging Face trainer_state.json", _fits, _readings, document=True)
