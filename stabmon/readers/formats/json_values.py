"""A JSON array of values without a name: TensorBoard's download of a scalar, `[time, step, value]` each, or numbers, as
`json.dump(losses)` writes them.
"""

from __future__ import annotations

from collections.abc import Iterator

from stabmon.readers.feeding import UNIX
from stabmon.readers.format import Format, Head
from stabmon.readers.formats import tensorboard_csv
from stabmon.readers.formats.json_lists import are_numbers, parsed, text_of
from stabmon.readers.formats.tensorboard_csv import VALUE, is_loss
from stabmon.readers.reading import Asked, ReadError, Reading, number
from stabmon.readers.rows import reader, roles
from stabmon.readers.source import Source


def _rows(document: object) -> list[dict[str, object]]:
    if not isinstance(document, list) or len(document) < 2:
        return []
    if are_numbers(document):
        return [{VALUE: cell} for cell in document]
    if all(isinstance(cell, list) and len(cell) == 3 and are_numbers(cell) for cell in document) and all(
        number(cell[0]) > UNIX for cell in document
    ):
        return [dict(zip(("Wall time", "Step", VALUE), cell, strict=True)) for cell in document]
    return []


def _fits(head: Head, asked: Asked) -> bool:
    return bool(_rows(parsed(head.document)))


def is_of_another(head: Head, name: str) -> bool:
    """It is such a file, and does not say that it is of a loss."""
    return bool(_rows(parsed(head.document))) and is_loss(name) is not True


def _readings(source: Source, head: Head, asked: Asked) -> Iterator[Reading | None]:
    rows = _rows(parsed(text_of(source)))
    if not rows:
        raise ReadError(f"{source.name} is an array of values that is cut off or damaged; give one that is whole")
    says = True if asked.loss else is_loss(source.name)
    if says is False or (says is None and "Step" not in rows[0]):
        raise tensorboard_csv.refusal(source.name)
    if says is None:
        source.notes.say(tensorboard_csv.TAKEN)
    chosen = roles(rows, Asked(asked.loss or VALUE, asked.step, asked.run), source.notes, source.name)
    assert chosen is not None, "the loss is named"
    yield from map(reader(chosen), rows)


JSON_VALUES = Format("JSON array of values", _fits, _readings, document=True)
