"""Leads as a picture: for each failure, how early stabmon speaks, and each rule in use. One SVG file, made by hand."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path

import numpy as np

from stabmon.bench.detection.figures import Graded
from stabmon.bench.detection.outcomes import FAILURES
from stabmon.bench.detection.tables import number
from stabmon.bench.detection.versus import OURS, versus

FROM, TO = -150, 300
"""Steps of lead that the axis shows; what lies beyond is drawn at its end."""
_LEFT, _WIDTH, _RIGHT, _ROW, _HEAD = 190, 520, 90, 18, 30
_OURS, _THEIRS, _INK, _FAINT = "#1f5fbf", "#8a8f98", "#30343b", "#d5d8dd"


def draw(path: Path, runs: Sequence[Graded]) -> None:
    """A bar from the 10 % to the 90 % quantile and a dot at the median; right of it the recall."""
    lines = list(_lines(runs))
    height = 60 + sum(size for size, _ in lines)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_LEFT + _WIDTH + _RIGHT}" height="{height}" '
        'font-family="system-ui, sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="#ffffff"/>',
        *_axis(height),
    ]
    y = 40.0
    for size, part in lines:
        parts.append(f'<g transform="translate(0 {y:g})">{part}</g>')
        y += size
    path.write_text("\n".join((*parts, "</svg>")) + "\n", encoding="utf-8")


def _lines(runs: Sequence[Graded]) -> Iterator[tuple[int, str]]:
    """(height, drawing)."""
    rules = versus(runs)
    for name in FAILURES:
        mine = {rule: row.by_class[name] for rule, row in rules.items() if name in row.by_class}
        if not mine:
            continue
        count = max(row.recall.of for row in mine.values())
        yield _HEAD, _text(8, 20, f"{name}, {count} {'run' if count == 1 else 'runs'}", weight="bold")
        for rule, row in mine.items():
            drawn = _text(20, 12, rule, colour=_OURS if rule in OURS else _INK)
            if row.leads:
                drawn += _bar(row.leads, _OURS if rule in OURS else _THEIRS)
            drawn += _text(_LEFT + _WIDTH + 14, 12, f"{row.recall.hits}/{row.recall.of}")
            yield _ROW, drawn
    yield _HEAD, _text(8, 20, "Where nothing was wrong: alarms in 100,000 steps", weight="bold")
    for rule, whole in rules.items():
        told = number(whole.false.per_1e5) if whole.false.points else "not read"
        yield _ROW, _text(20, 12, rule, colour=_OURS if rule in OURS else _INK) + _text(_LEFT, 12, told)


def _bar(leads: Sequence[int], colour: str) -> str:
    low, middle, high = (_x(float(q)) for q in np.quantile(leads, (0.1, 0.5, 0.9)))
    return (
        f'<line x1="{low:.1f}" y1="8" x2="{high:.1f}" y2="8" stroke="{colour}" stroke-width="3"/>'
        f'<circle cx="{middle:.1f}" cy="8" r="4.5" fill="{colour}"/>'
    )


def _axis(height: int) -> Iterator[str]:
    for lead in range(FROM, TO + 1, 50):
        x, strong = _x(lead), lead == 0
        colour = _INK if strong else _FAINT
        yield f'<line x1="{x:.1f}" y1="40" x2="{x:.1f}" y2="{height - 10}" stroke="{colour}" stroke-width="1"/>'
        yield _text(x, 34, f"{lead}", anchor="middle")
    yield _text(_x(0), 16, "steps from the first alarm to the onset; left of 0 it came too late", anchor="middle")
    yield _text(_LEFT + _WIDTH + 14, 34, "spoke")


def _x(lead: float) -> float:
    return _LEFT + _WIDTH * (min(max(lead, FROM), TO) - FROM) / (TO - FROM)


def _text(x: float, y: float, text: str, colour: str = _INK, anchor: str = "start", weight: str = "normal") -> str:
    return (
        f'<text x="{x:g}" y="{y:g}" fill="{colour}" text-anchor="{anchor}" font-weight="{weight}">{escape(text)}</text>'
    )
