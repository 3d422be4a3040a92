"""JSON lines of any kind: names are guessed. A line may have something before its brace."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

from stabmon.readers import names
from stabmon.readers.format import Format, Head
from stabmon.readers.log import by_line
from stabmon.readers.reading import Asked, ReadError, Reading
from stabmon.readers.rows import flat, reader, roles
from stabmon.readers.source import Source

_FEW = 2000
"""Lines of the head by which names are chosen."""


def head_rows(head: Head) -> list[dict[str, object]]:
    """The rows among the head's first lines."""
    return [row for line in head.lines[:_FEW] if (row := _row(line)) is not None]


def _row(line: str) -> dict[str, object] | None:
    start = line.find("{")
    if start < 0 or start > 200:
        return None
    try:
        row = json.loads(line[start:] if start else line)
    except (ValueError, RecursionError):
        return None
    return flat(row) if isinstance(row, dict) else None


def _fits(head: Head, asked: Asked) -> bool:
    if not head.lines or (head.lines[0][:1] != "{" and "{" not in head.lines[0][:200]):
        return False
    return has_loss(head_rows(head), asked)


def has_loss(rows: list[dict[str, object]], asked: Asked) -> bool:
    """Whether a row has what was asked for, or what looks like a loss."""
    keys = {name for row in rows for name in row}
    return asked.loss in keys or any(names.loss(key) is not None or names.eval_loss(key) is not None for key in keys)


def _readings(source: Source, head: Head, asked: Asked) -> Iterator[Reading | None]:
    rows = head_rows(head)
    chosen = roles(rows, asked, source.notes, source.name)
    if chosen is None:
        raise ReadError(f"{source.name} has no key that looks like a loss; name one with --loss")
    source.run, source.others = chosen.read_run, chosen.others
    nested = any("/" in name for name in (chosen.loss, chosen.step, chosen.grad_norm, chosen.eval_loss))
    return by_line(source, _parser(reader(chosen), nested))


def _parser(read: Callable[[dict[str, object]], Reading | None], nested: bool) -> Callable[[str], Reading | None]:
    loads = json.loads

    def parse(line: str) -> Reading | None:
        start = 0 if line[0] == "{" else line.find("{")
        if start < 0:
            return None
        try:
            row = loads(line[start:] if start else line)
        except RecursionError:
            raise ValueError("it is nested too deeply") from None
        except json.JSONDecodeError:
            raise
        except ValueError:
            raise ValueError("a number in it has thousands of digits") from None
        if not isinstance(row, dict):
            return None
        return read(flat(row) if nested else row)

    return parse


JSON_LINES = Format("JSON lines", _fits, _readings)
