"""Curves over steps as an inline SVG that works on light and dark pages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from math import ceil, floor, isfinite, log10

WIDTH, HEIGHT = 760, 240
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 12, 12, 28
_WIDE_RANGE = 30.0
"""From this ratio of highest to lowest on the axis is logarithmic."""
_LEVELS = (0.2, 0.5, 1.0)


@dataclass(frozen=True)
class Curve:
    """`low` and `high` are aligned with `steps`; None was not read."""

    name: str
    colour: str
    steps: Sequence[int]
    low: Sequence[float | None]
    high: Sequence[float | None]
    dashed: bool = False

    def finite(self) -> list[float]:
        return [value for value in (*self.low, *self.high) if value is not None and isfinite(value)]


@dataclass(frozen=True)
class Mark:
    """A line across at a step, with what a pointer that rests on it is told."""

    step: int
    colour: str
    text: str


def chart(title: str, curves: Sequence[Curve], marks: Iterable[Mark]) -> str:
    """SVG; "" where no curve has a value."""
    values = [value for curve in curves for value in curve.finite()]
    if not values:
        return ""
    steps = [step for curve in curves for step in curve.steps]
    plot = _Plot(min(steps), max(steps), min(values), max(values))
    parts = [*plot.axes(), *(plot.mark(mark) for mark in marks), *(plot.curve(curve) for curve in reversed(curves))]
    style = f"width:100%;max-width:{WIDTH}px;height:auto;display:block"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" style="{style}"'
        f' aria-label="{escape(title)}" font-size="11" font-family="sans-serif">{"".join(parts)}</svg>'
    )


class _Plot:
    def __init__(self, first: int, last: int, low: float, high: float) -> None:
        self._first, self._span = first, max(1, last - first)
        self._log = low > 0 and high / low > _WIDE_RANGE
        self._low, self._high = self._scale(low), self._scale(high)
        least = 1e-6 * max(abs(self._low), abs(self._high))
        if self._high - self._low <= least:
            half = max(0.5, 1e6 * least / 2)
            self._low, self._high = self._low - half, self._high + half

    def axes(self) -> Iterator[str]:
        for value in self._ticks():
            at, label = self._y(value), f"{value:.3g}"
            yield f'<path d="M{_LEFT} {at:.1f}H{WIDTH - _RIGHT}" stroke="currentColor" stroke-opacity=".15"/>'
            yield _text(_LEFT - 6, at + 4, label, "end")
        for step, anchor in ((self._first, "start"), (self._first + self._span, "end")):
            yield _text(self._x(step), HEIGHT - 8, f"step {step:,}", anchor)

    def curve(self, curve: Curve) -> str:
        """Through the lowest and the highest of each point, so that no spike is lost; broken where nothing was read."""
        path, drawing = [], False
        for step, low, high in zip(curve.steps, curve.low, curve.high, strict=True):
            ends = [value for value in (low, high) if value is not None and isfinite(value)]
            for value in dict.fromkeys(ends):
                path.append(f"{'L' if drawing else 'M'}{self._x(step):.1f} {self._y(value):.1f}")
                drawing = True
            drawing = drawing and bool(ends)
        dash = ' stroke-dasharray="5 4"' if curve.dashed else ""
        return f'<path d="{"".join(path)}" fill="none" stroke="{curve.colour}" stroke-width="1.5"{dash}/>'

    def mark(self, mark: Mark) -> str:
        at, bottom = self._x(mark.step), HEIGHT - _BOTTOM
        line = f'<path d="M{at:.1f} {_TOP}V{bottom}" stroke="{mark.colour}" stroke-width="2"/>'
        return f"<g><title>{escape(mark.text)}</title>{line}</g>"

    def _x(self, step: int) -> float:
        inside = min(max(step - self._first, 0), self._span)
        return _LEFT + (WIDTH - _LEFT - _RIGHT) * inside / self._span

    def _y(self, value: float) -> float:
        part = (self._scale(value) - self._low) / (self._high - self._low)
        return HEIGHT - _BOTTOM - (HEIGHT - _TOP - _BOTTOM) * part

    def _scale(self, value: float) -> float:
        return log10(value) if self._log else value

    def _ticks(self) -> list[float]:
        """Some four round values."""
        if self._log:
            every = ceil((self._high - self._low) / 4)
            return [10.0**power for power in range(ceil(self._low), floor(self._high) + 1, every)]
        unit = 10.0 ** floor(log10(self._high - self._low))
        width = next(unit * level for level in _LEVELS if (self._high - self._low) / (unit * level) <= 6 or level == 1)
        return [width * i for i in range(ceil(self._low / width), floor(self._high / width) + 1)]


def _text(x: float, y: float, content: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" fill="currentColor" text-anchor="{anchor}">{escape(content)}</text>'
