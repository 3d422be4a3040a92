"""Numbers, durations and strange text as a terminal shows them."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from math import isfinite, log10

from stabmon.server.verdict import duration

_LEVELS = "▁▂▃▄▅▆▇█"
NOT_FINITE = "!"
_WIDE_RANGE = 30.0
"""From this ratio of highest to lowest on a curve is logarithmic."""


def number(value: float | None) -> str:
    """Three digits, as on the page."""
    if value is None:
        return "–"
    if not isfinite(value):
        return "not finite"
    size = abs(value)
    if value == int(value) and size < 1e9:
        return f"{value:,.0f}"
    if size >= 1e5 or size < 1e-3:
        return _scientific(value, 3)
    return f"{value:.3g}" if size < 1000 else f"{value:,.0f}"


def _scientific(value: float, digits: int) -> str:
    digit, _, power = f"{value:.{digits - 1}e}".partition("e")
    return f"{digit}e{int(power)}"


def factor(value: float | None) -> str:
    """ "×3.6"; of what shrank "÷3.6"; "" of what is not known."""
    if value is None or value <= 0:
        return ""
    if not isfinite(value):
        return NOT_FINITE
    sign, size = ("×", value) if value >= 1 else ("÷", 1 / value)
    if size < 100:
        return f"{sign}{size:.2g}"
    return f"{sign}{size:,.0f}" if size < 1e4 else f"{sign}{_scientific(size, 2)}"


def age(seconds: float | None) -> str:
    """ "3 s ago"; a clock that was set back tells of no future."""
    return "" if seconds is None else f"{duration(max(0.0, seconds))} ago"


def seconds(value: float | None) -> str:
    """Of a step: ms or s."""
    if value is None:
        return "–"
    return f"{1000 * value:.2g} ms" if value < 0.0995 else f"{value:.2g} s"


def percent(ratio: float | None) -> str:
    if ratio is None:
        return "–"
    return f"{100 * ratio:.2g} %" if ratio < 0.0995 else f"{100 * ratio:.0f} %"


def plain(text: str) -> str:
    """One line that cannot steer the terminal: names come from whoever trains."""
    return "".join(" " if c.isspace() else "\ufffd" if _steers(c) else c for c in text)


def spark(values: Sequence[float | None], width: int) -> str:
    """A curve of that many characters, a blank where nothing was read, "!" where it was not finite."""
    cells = _fit(values, width)
    finite = [value for value in cells if value is not None and isfinite(value)]
    if not finite:
        return "".join(" " if value is None else NOT_FINITE for value in cells)
    lowest, highest = min(finite), max(finite)
    scale = log10 if lowest > 0 and highest / lowest > _WIDE_RANGE else float
    low, high = scale(lowest), scale(highest)

    def mark(value: float | None) -> str:
        if value is None:
            return " "
        if not isfinite(value):
            return NOT_FINITE
        height = (scale(value) - low) / (high - low) if high > low else 0.0
        return _LEVELS[min(int(height * len(_LEVELS)), len(_LEVELS) - 1)]

    return "".join(map(mark, cells))


def _fit(values: Sequence[float | None], width: int) -> list[float | None]:
    """Each cell the highest of what falls into it."""
    if len(values) <= width:
        return list(values)
    edges = [len(values) * i // width for i in range(width + 1)]
    return [
        max((value for value in values[a:b] if value is not None), default=None)
        for a, b in zip(edges, edges[1:], strict=False)
    ]


def _steers(character: str) -> bool:
    """Control characters and those that turn the direction of writing; joiners of emoji are not."""
    return (
        unicodedata.category(character) in ("Cc", "Cs")
        or character in "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
    )
