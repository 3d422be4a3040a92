"""TensorBoard's event files, by TensorBoard's own reader: one, or a folder of them, the later after the earlier."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from stabmon.readers.reading import Asked, Notes, ReadError, Reading
from stabmon.readers.rows import reader, roles

NAME = "TensorBoard event files"
_MARK = b"brain.Event:"
_FEW = 20_000
_Scalar = dict[str, object]


def is_events(head: bytes) -> bool:
    return _MARK in head[:64]


def files(folder: Path) -> list[Path]:
    """Event files that lie in it, in the order in which they were begun."""
    return sorted(path for path in folder.glob("*tfevents*") if path.is_file())


def readings(path: Path, asked: Asked, notes: Notes) -> Iterator[Reading | None]:
    """ReadError: the library is not there, or no tag looks like a loss."""
    rows: list[_Scalar] = list(islice(_scalars(path, notes), _FEW))
    chosen = roles(rows, asked, notes, str(path))
    if chosen is None:
        tags = sorted({name for row in rows for name in row} - {"step", "wall_time"})
        raise ReadError(
            f"{path} has no tag that looks like a loss; name one with --loss: {', '.join(tags[:12]) or '-'}"
        )
    read = reader(chosen)
    for row in _scalars(path, notes):
        made = read(row)
        if made is not None:
            yield made


def _scalars(path: Path, notes: Notes) -> Iterator[_Scalar]:
    for file in files(path) if path.is_dir() else [path]:
        yield from _scalars_of(file, notes)


def _scalars_of(file: Path, notes: Notes) -> Iterator[_Scalar]:
    try:
        from tensorboard.backend.event_processing.event_file_loader import LegacyEventFileLoader
        from tensorboard.util import tensor_util
    except ImportError:
        raise ReadError(f"{file} is of TensorBoard; to read it: pip install 'stabmon[tensorboard]'") from None
    try:
        for event in LegacyEventFileLoader(str(file)).Load():
            for value in event.summary.value:
                if (cell := _value(value, tensor_util)) is not None:
                    yield {value.tag: cell, "step": event.step, "wall_time": event.wall_time}
    except (ValueError, TypeError, OSError, EOFError, RuntimeError) as error:
        notes.say(f"{file.name} is damaged ({type(error).__name__}); what is whole was read.")


def _value(value: Any, tensor_util: Any) -> float | None:
    """A scalar, in either of the two ways in which it is stored."""
    if value.HasField("simple_value"):
        return float(value.simple_value)
    if not value.HasField("tensor") or value.tensor.tensor_shape.dim or value.tensor.dtype not in (1, 2):
        return None
    return float(tensor_util.make_ndarray(value.tensor).item())
