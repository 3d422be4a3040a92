"""Keras: `json.dump(history.history)`, a list a metric with a number an epoch."""

import re

from stabmon.readers import names
from stabmon.readers.format import Format, Head
from stabmon.readers.formats.json_lists import JSON_LISTS
from stabmon.readers.reading import Asked

_BEGINNING = re.compile(r'\A\s*\{\s*"[^"\n]{1,80}"\s*:\s*\[\s*[-\d.NI]')
_LIST = re.compile(r'"([^"\\\n]{1,80})"\s*:\s*\[\s*[-\d.NI]')


def _fits(head: Head, asked: Asked) -> bool:
    """Also of one that is cut off, whose message then says so."""
    return bool(_BEGINNING.match(head.document)) and any(
        names.loss(name) is not None for name in _LIST.findall(head.document)
    )


KERAS_HISTORY = Format("Keras history", _fits, JSON_LISTS.readings, document=True)
