"""A JSON object with the rows of a run in it: as a list, or by the numbers of their steps."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, islice, pairwise
from operator import itemgetter

from stabmon.readers import json_stream, names
from stabmon.readers.format import Format, Head
from stabmon.readers.formats.trainer_state import read_objects
from stabmon.readers.reading import Asked, Notes, ReadError, Reading
from stabmon.readers.rows import Row, counts, flat, listed
from stabmon.readers.source import Source

_OBJECT = r"\A\W{0,50}?\{"
_BEGINNING = re.compile(_OBJECT)
_KEY = re.compile(r'[\s,]*"([^"\\\n]{1,80})"\s{0,50}:\s{0,50}')
_LIST = r"\[(?=\s{0,500}\{)"
_BY_STEP = r'\{(?=\s{0,500}"\d{1,15}"\s{0,50}:\s{0,50}\{)'
_ROWS = re.compile(f"{_LIST}|{_BY_STEP}")
_STEP = re.compile(r"\d{1,15}")
_FEW = 200
_PLACES = 20


@dataclass(frozen=True)
class _Place:
    """Where the rows stand."""

    key: str
    """"": in the object itself."""
    opening: re.Pattern[str]
    by_step: bool


def _fits(head: Head, asked: Asked) -> bool:
    return bool(_places(head, asked))


def _places(head: Head, asked: Asked) -> list[_Place]:
    """All that have rows with a loss; those of evaluations last."""
    first, _, more = head.document.partition("\n")
    if not _BEGINNING.match(first) or (more and _whole(first)):  # JSON lines
        return []
    found = [place for place in islice(_candidates(head.document), _PLACES) if _has_run(_few(head, place), asked)]
    return sorted(found, key=lambda place: bool(names.EVALUATED & set(names.words(place.key))))


def _whole(line: str) -> bool:
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True


def _candidates(document: str) -> Iterator[_Place]:
    """Of the object itself, of what is in it, and of what is in that, not deeper."""
    beginning = _BEGINNING.match(document)
    at = beginning.end() if beginning else len(document)
    if re.match(_BY_STEP, document[at - 1 : at + 1000]):
        yield _Place("", re.compile(_OBJECT), by_step=True)
        return
    yield from _members(document, at, deeper=True)


def _members(document: str, at: int, deeper: bool) -> Iterator[_Place]:
    """Of the object that begins before `at`."""
    decoder = json.JSONDecoder()
    while key := _KEY.match(document, at):
        if rows := _ROWS.match(document, key.end()):
            by_step = rows[0] == "{"
            opening = re.compile(rf'"{re.escape(key[1])}"\s{{0,50}}:\s{{0,50}}{_BY_STEP if by_step else _LIST}')
            if (there := opening.search(document)) and there.end() == rows.end():
                yield _Place(key[1], opening, by_step)
        elif deeper and document[key.end() : key.end() + 1] == "{":
            yield from _members(document, key.end() + 1, deeper=False)
        try:
            _, at = decoder.raw_decode(document, key.end())
        except (ValueError, RecursionError):
            return


def _few(head: Head, place: _Place) -> list[Row]:
    return list(islice(_rows(Source(io.BytesIO(head.raw), "", None, False, Notes()), place), _FEW))


def _has_run(rows: list[Row], asked: Asked) -> bool:
    """Two rows and more, with steps and losses; a lone one is about something else."""
    losses = [name for name, count in counts(rows).items() if count and _is_loss(name, asked)]
    steps = [name for name, count in counts(rows).items() if count and _is_step(name, asked)]
    return len(rows) > 1 and bool(losses and steps)


def _is_loss(name: str, asked: Asked) -> bool:
    return name == asked.loss or names.loss(name) is not None or names.eval_loss(name) is not None


def _is_step(name: str, asked: Asked) -> bool:
    return name == asked.step or names.step(name) is not None or names.epoch(name) is not None


def _rows(source: Source, place: _Place) -> Iterator[dict[str, object]]:
    if not place.by_step:
        return map(flat, json_stream.objects(source, place.opening))
    entries = json_stream.keyed(source, place.opening)
    return _in_order((int(key), row) for key, row in entries if _STEP.fullmatch(key))


def _in_order(entries: Iterator[tuple[int, dict[str, object]]]) -> Iterator[dict[str, object]]:
    """By step; held in memory where they are not so, as keys that were sorted as text."""
    few = list(islice(entries, _FEW))
    if any(before > after for (before, _), (after, _) in pairwise(few)):
        few, entries = sorted([*few, *entries], key=itemgetter(0)), iter(())
    return ({"step": step, **flat(row)} for step, row in chain(few, entries))


def _readings(source: Source, head: Head, asked: Asked) -> Iterator[Reading | None]:
    places = _places(head, asked)
    if not places:
        raise ReadError(f"{source.name} has no rows with a step and a loss; give it whole")
    found, *others = places
    if found.key:
        more = f", and not from {listed([place.key for place in others])}" if others else ""
        source.notes.say(f"Rows read from {found.key!r}{more}.")
    yield from read_objects(source, _rows(source, found), asked)


JSON_OBJECT = Format("JSON object", _fits, _readings, document=True)
