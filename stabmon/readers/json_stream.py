"""The objects of a JSON array or object, one by one, out of a document that need not be whole."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import chain

from stabmon.readers.source import Source
from stabmon.readers.text import decoded

LONGEST = 4 << 20
"""Characters of one object."""

CUT_OFF = "The file is cut off or damaged"
_BETWEEN = re.compile(r"[\s,]*()")
_KEY = re.compile(r'[\s,]*(?:"([^"\\]{0,100})"\s*:\s*)?')


def objects(source: Source, opening: re.Pattern[str]) -> Iterator[dict[str, object]]:
    """Those of the array that `opening` ends with. A document that is cut off says so to the notes."""
    return (found for _, found in _members(source, opening, _BETWEEN, "]"))


def keyed(source: Source, opening: re.Pattern[str]) -> Iterator[tuple[str, dict[str, object]]]:
    """Those of the object that `opening` ends with, with their keys; likewise."""
    return _members(source, opening, _KEY, "}")


def _members(
    source: Source, opening: re.Pattern[str], before: re.Pattern[str], end: str
) -> Iterator[tuple[str, dict[str, object]]]:
    decoder, text, at, count = json.JSONDecoder(), "", -1, 0
    wanted = 0
    for chunk in chain(decoded(source.chunks()), [None]):
        text, wanted = (text, 0) if chunk is None else (text + chunk, wanted)
        if at < 0:
            if not (match := opening.search(text)):
                text = text[-1000:]
                continue
            at = match.end()
        while len(text) - at >= wanted:
            key = before.match(text, at)
            assert key is not None, "it may be empty"
            if text[key.end() : key.end() + 1] == end:
                return
            try:
                found, at = decoder.raw_decode(text, key.end())
            except (ValueError, RecursionError):
                wanted = 2 * (len(text) - at)  # twice as much before the next try: a long object is not parsed for ever
                break
            wanted, count = 0, count + 1
            if isinstance(found, dict):
                yield key[1] or "", found
        text, at = text[at:], 0
        if len(text) > LONGEST:
            break
    source.notes.say(f"{CUT_OFF} after entry {count}; what is whole was read.")
