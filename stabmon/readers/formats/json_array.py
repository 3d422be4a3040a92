"""A JSON array of rows, as `json.dump(log_history)` makes it."""

import re
from collections.abc import Iterator

from stabmon.readers import json_stream
from stabmon.readers.format import Format, Head
from stabmon.readers.formats.json_lines import has_loss
from stabmon.readers.formats.trainer_state import read_objects
from stabmon.readers.reading import Asked, Reading
from stabmon.readers.source import Source

_OPENING = re.compile(r"\A\W{0,50}?\[")
_BEGINNING = re.compile(r"\A\W{0,50}?\[\s*\{")
_KEY = re.compile(r'"([^"\\\n]{1,80})"\s{0,9}:')


def _fits(head: Head, asked: Asked) -> bool:
    if not _BEGINNING.match(head.document):
        return False
    return has_loss([dict.fromkeys(_KEY.findall(head.document, 0, 100_000))], asked)


def _readings(source: Source, head: Head, asked: Asked) -> Iterator[Reading | None]:
    return read_objects(source, json_stream.objects(source, _OPENING), asked)


JSON_ARRAY = Format("JSON array", _fits, _readings, document=True)
