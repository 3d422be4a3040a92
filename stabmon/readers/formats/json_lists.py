"""A JSON document whose lists are the run: the numbers of each metric, or points of a step and a value.

Keras' `history.history` is such a one, bare, within something else, or by pandas' `to_json`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from heapq import merge
from itertools import pairwise
from operator import itemgetter

from stabmon.readers import names
from stabmon.readers.format import Format, Head
from stabmon.readers.reading import LARGEST_STEP, Asked, Notes, ReadError, Reading, number
from stabmon.readers.rows import listed, reader, roles
from stabmon.readers.source import Source
from stabmon.readers.text import LONGEST, decoded

_DEEP = 3
_STEP = "step"
_DIGITS = re.compile(r"\d{1,15}")
_LIKE_JSON = re.compile(r'\A\s*(?:\{\s*"|\[\s*[\[{])')
_Cells = list[object]
_Points = list[tuple[int, object]]
_Row = dict[str, object]


def parsed(text: str) -> object:
    """None: no whole document, or a longer one than is held in memory."""
    bare = text.strip().lstrip("\ufeff")
    if len(bare) > LONGEST or bare[:1] not in ("{", "[") or bare[-1:] not in ("}", "]"):
        return None
    try:
        return json.loads(bare)
    except (ValueError, RecursionError):
        return None


def lists(document: object) -> tuple[dict[str, _Cells], dict[str, _Points]]:
    """Those of numbers, and those of points, by the shortest name that tells them apart."""
    found = dict(_lists(document, (), _DEEP)) if isinstance(document, dict) else {}
    last = [path[-1] for path in found]
    numbers: dict[str, _Cells] = {}
    points: dict[str, _Points] = {}
    for path, cells in found.items():
        above = "/".join(path[:-1])
        alone = last.count(path[-1]) == 1 and not _says_what(above)
        name = path[-1] if alone else "/".join(path)
        if are_numbers(cells):
            numbers[name] = cells
        elif made := _points(cells):
            points[name] = made
    return numbers, points


def _says_what(name: str) -> bool:
    """It tells of a loss, or of an evaluation: what stands in it is not known without it."""
    told = names.EVALUATED & set(names.words(name))
    return bool(told) or names.loss(name) is not None or names.eval_loss(name) is not None


def _lists(document: dict[str, object], path: tuple[str, ...], deep: int) -> Iterator[tuple[tuple[str, ...], _Cells]]:
    for name, cell in document.items():
        if isinstance(cell, list) and len(cell) > 1:
            yield (*path, name), cell
        elif isinstance(cell, dict) and (cells := _by_number(cell)):
            yield (*path, name), cells
        elif isinstance(cell, dict) and deep > 1:
            yield from _lists(cell, (*path, name), deep - 1)


def _by_number(cell: dict[str, object]) -> _Cells:
    """Of `{"0": 3.0, "1": 2.5}`, as pandas writes a column: its values; of other numbers points; else nothing."""
    if len(cell) < 2 or not all(map(_DIGITS.fullmatch, cell)) or not are_numbers(list(cell.values())):
        return []
    found = sorted((int(key), value) for key, value in cell.items())
    if [key for key, _ in found] == list(range(len(found))):
        return [value for _, value in found]
    return [[key, value] for key, value in found]


def are_numbers(cells: _Cells) -> bool:
    """Or blank, but not all of them."""
    try:
        values = [number(cell) for cell in cells]
    except ValueError:
        return False
    return any(value == value for value in values)


def _points(cells: _Cells) -> _Points:
    """(step, value); none where they are something else."""
    made = []
    for cell in cells:
        if not isinstance(cell, list) or len(cell) != 2 or not are_numbers(cell):
            return []
        step = number(cell[0])
        if not (0 <= step < LARGEST_STEP and step.is_integer()):
            return []
        made.append((int(step), cell[1]))
    return made if all(before <= after for (before, _), (after, _) in pairwise(made)) else []


def _fits(head: Head, asked: Asked) -> bool:
    document = parsed(head.document)
    if not isinstance(document, dict) or _is_row(document):
        return False
    return any(_has_loss(list(found), asked) for found in lists(document))


def _is_row(document: dict[str, object]) -> bool:
    """The first of JSON lines, with lists beside its loss."""
    scalars = [name for name, cell in document.items() if isinstance(cell, int | float)]
    told = {"step", "epoch", "iteration", "iter"} & set(scalars)
    return bool(told) and any(names.loss(name) is not None for name in scalars)


def _has_loss(found: list[str], asked: Asked) -> bool:
    return asked.loss in found or any(
        names.loss(name) is not None or names.eval_loss(name) is not None for name in found
    )


def misfit(head: Head) -> str:
    """Why a document holds no losses, and what to do, in words; "" where it is none, or another matter."""
    document = parsed(head.document)
    if document is None and head.document.lstrip()[:2] == "{'":
        return "it looks like what Python prints of a dict; write it with json.dump instead"
    if document is None and _LIKE_JSON.match(head.document) and (not head.lines or parsed(head.lines[0]) is None):
        return "it looks like JSON that is cut off or damaged; write it again, or give one that is whole"
    found = [name for each in lists(document) for name in each]
    return f"its lists are {listed(found)}; name the one of the loss with --loss" if found else ""


def text_of(source: Source) -> str:
    """All of it. ReadError: it is longer than any history is."""
    text = ""
    for piece in decoded(source.chunks()):
        text += piece
        if len(text) > LONGEST:
            raise ReadError(f"{source.name} is a JSON document of lists, but is longer than any history is")
    return text


def _readings(source: Source, head: Head, asked: Asked) -> Iterator[Reading | None]:
    if (document := parsed(text_of(source))) is None:
        raise ReadError(f"{source.name} looks like a history of Keras, but is cut off or damaged")
    numbers, points = lists(document)
    rows = list(_of_numbers(numbers, asked, source.notes) if _has_loss(list(numbers), asked) else _of_points(points))
    chosen = roles(rows, asked, source.notes, source.name)
    if chosen is None:
        has = listed([*numbers, *points]) or "none of numbers"
        raise ReadError(f"{source.name} has no list that looks like a loss; name one with --loss: {has}")
    yield from map(reader(chosen), rows)


def _of_points(points: dict[str, _Points]) -> Iterator[_Row]:
    """In the order of their steps."""
    made = ([(step, {_STEP: step, name: cell}) for step, cell in cells] for name, cells in points.items())
    return (row for _, row in merge(*made, key=itemgetter(0)))


def _of_numbers(numbers: dict[str, _Cells], asked: Asked, notes: Notes) -> Iterator[_Row]:
    """One row each place. A list of another length than the loss counts something else."""
    seen = {name: len(cells) for name, cells in numbers.items()}
    likely = [asked.loss] if asked.loss in seen else names.best("loss", seen) or names.best("eval_loss", seen)
    loss = likely[0]
    assert loss is not None, "one of them is a loss"
    kept = {name: cells for name, cells in numbers.items() if len(cells) == len(numbers[loss])}
    _tell_left_out([name for name in numbers if name not in kept], loss, notes)
    return (dict(zip(kept, cells, strict=True)) for cells in zip(*kept.values(), strict=True))


def _tell_left_out(others: list[str], loss: str, notes: Notes) -> None:
    if others:
        notes.say(f"Lists that are not as long as {loss!r} were left out: {listed(others)}.")


JSON_LISTS = Format("JSON lists", _fits, _readings, document=True)
