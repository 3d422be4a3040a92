"""A matrix as a picture in a data URI: PNG by hand, since nothing else here draws."""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Sequence
from math import isfinite, log10

VIRIDIS = (
    "440154", "482878", "3e4989", "31688e", "26828e", "1f9e89", "35b779", "6ece58", "b5de2b", "fde725",
)  # fmt: skip
"""The page's colours, dark is low; readable for colour-blind people."""
NOT_FINITE = "ff2d95"
_BLANK, _BROKEN, _FIRST, _LAST = 0, 1, 2, 255
"""Places in the palette: not read, not finite, lowest and highest value."""


def picture(rows: Sequence[Sequence[float | None]]) -> tuple[str, float, float] | None:
    """The data URI of a PNG, a pixel a cell, its last row on top, and the values that its colours begin and end with.

    Colours are logarithmic. A cell that was not read keeps the colour of the one before it. None: nothing to show.
    """
    finite = [value for row in rows for value in row if value is not None and isfinite(value) and value > 0]
    if not finite:
        return None
    low, high = min(finite), max(finite)
    pixels = [bytes(_indices(row, low, high)) for row in reversed(rows)]
    return f"data:image/png;base64,{base64.b64encode(_png(pixels)).decode()}", low, high


def _indices(row: Sequence[float | None], low: float, high: float) -> list[int]:
    found, held = [], _BLANK
    span = log10(high / low) or 1.0
    for value in row:
        if value is not None:
            part = (log10(min(max(value, low), high) / low) / span) if isfinite(value) else 0.0
            held = _FIRST + round(part * (_LAST - _FIRST)) if isfinite(value) else _BROKEN
        found.append(held)
    return found


def _png(rows: Sequence[bytes]) -> bytes:
    """Eight bits a pixel, each a place in the palette."""
    header = struct.pack(">IIBBBBB", len(rows[0]), len(rows), 8, 3, 0, 0, 0)
    colours = [
        b"\0\0\0",
        bytes.fromhex(NOT_FINITE),
        *(_colour(i / (_LAST - _FIRST)) for i in range(_LAST - _FIRST + 1)),
    ]
    data = zlib.compress(b"".join(b"\0" + row for row in rows))
    chunks = ((b"IHDR", header), (b"PLTE", b"".join(colours)), (b"tRNS", b"\0"), (b"IDAT", data), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(*chunk) for chunk in chunks)


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def _colour(part: float) -> bytes:
    """From 0 to 1, between its neighbours in the table."""
    place = part * (len(VIRIDIS) - 1)
    before = min(int(place), len(VIRIDIS) - 2)
    low, high = (bytes.fromhex(VIRIDIS[before + i]) for i in (0, 1))
    return bytes(round(a + (b - a) * (place - before)) for a, b in zip(low, high, strict=True))
