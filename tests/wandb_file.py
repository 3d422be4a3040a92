"""Reads what an offline W&B run left on disk."""

from __future__ import annotations

import json
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from wandb.proto import wandb_internal_pb2

_BLOCK, _HEADER = 32768, struct.Struct("<IHB")
_FIRST_BYTES = 7
_WHOLE, _LAST = 1, 4


def records(folder: Path) -> list[Any]:
    """Every record of the one run below the folder; the last of them are written a moment after `run.finish()`."""
    (path,) = folder.rglob("*.wandb")
    deadline = time.monotonic() + 20
    while not (found := list(_read(path.read_bytes()))) or found[-1].WhichOneof("record_type") != "exit":
        assert time.monotonic() < deadline, "the run has no end"
        time.sleep(0.02)
    return found


def _read(data: bytes) -> Iterator[Any]:
    """The file is a LevelDB log of protobuf messages."""
    at, message = _FIRST_BYTES, b""
    while at + _HEADER.size <= len(data):
        if (left := _BLOCK - at % _BLOCK) < _HEADER.size:
            at += left
            continue
        _, length, kind = _HEADER.unpack_from(data, at)
        at += _HEADER.size
        message += data[at : at + length]
        at += length
        if kind in (_WHOLE, _LAST):
            yield wandb_internal_pb2.Record.FromString(message)
            message = b""


def rows(folder: Path) -> list[dict[str, Any]]:
    """What `run.log` was given, a dict a row, in order."""
    history = [record.history for record in records(folder) if record.WhichOneof("record_type") == "history"]
    return [{i.key or "/".join(i.nested_key): json.loads(i.value_json) for i in row.item} for row in history]


def alerts(folder: Path) -> list[tuple[str, str]]:
    """(level, title) of every `run.alert`."""
    found = [record.alert for record in records(folder) if record.WhichOneof("record_type") == "alert"]
    return [(a.level, a.title) for a in found]
