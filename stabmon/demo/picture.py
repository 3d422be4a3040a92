"""Draws a run log as the README shows it: `python -m stabmon.demo.picture RUN_LOG HEALTHY_RUN_LOG OUT.svg`."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from html import escape
from math import isfinite, log10
from pathlib import Path

from stabmon.demo.training import PATIENCE, patience
from stabmon.runlog import Recorded, read

WIDTH, LEFT, RIGHT = 880, 60, 20
PANEL, GAP, TOP = 190, 50, 40
STALLED, HEALTHY, BASELINE, WARNING, CRITICAL = "#0072b2", "#999999", "#555555", "#e69f00", "#d55e00"
Points = Sequence[tuple[int, float]]


def series(recorded: Recorded, statistic: str) -> Points:
    """(step, value) of a whole-model statistic wherever it was read."""
    found = ((snapshot.step, snapshot.scalar(statistic)) for snapshot, _ in recorded.feeds())
    return [(step, value) for step, value in found if isfinite(value)]


class Panel:
    """One plot: steps across, `low` to `high` upwards."""

    def __init__(self, top: float, steps: int, low: float, high: float) -> None:
        self.top, self.steps, self.low, self.high = top, steps, low, high

    def x(self, step: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * step / self.steps

    def y(self, value: float) -> float:
        inside = min(max(value, self.low), self.high)
        return self.top + PANEL * (self.high - inside) / (self.high - self.low)

    def frame(self, title: str, ticks: Iterable[tuple[float, str]]) -> list[str]:
        right, bottom = WIDTH - RIGHT, self.top + PANEL
        lines = [text(LEFT, self.top - 10, title, "#222222", weight="bold")]
        for value, label in ticks:
            at = self.y(value)
            lines.append(f'<path d="M{LEFT} {at:.1f}H{right}" stroke="#e5e5e5"/>')
            lines.append(text(LEFT - 8, at + 4, label, BASELINE, anchor="end"))
        for step in range(0, self.steps + 1, 50):
            lines.append(text(self.x(step), bottom + 18, str(step), BASELINE, anchor="middle"))
        return lines

    def curve(self, points: Points, colour: str, width: float = 2, dash: str = "") -> str:
        path = " ".join(f"{self.x(step):.1f},{self.y(value):.1f}" for step, value in points)
        stroke = f'stroke="{colour}" stroke-width="{width}" stroke-dasharray="{dash}"'
        return f'<polyline points="{path}" fill="none" {stroke}/>'

    def mark(self, step: int, label: str, colour: str, line: int) -> str:
        at = self.x(step)
        return (
            f'<path d="M{at:.1f} {self.top}V{self.top + PANEL}" stroke="{colour}" stroke-width="2"/>'
            f"{text(at + 6, self.top + 16 + 16 * line, label, colour, weight='bold')}"
        )


def text(x: float, y: float, content: str, colour: str, anchor: str = "start", weight: str = "normal") -> str:
    style = f'fill="{colour}" text-anchor="{anchor}" font-weight="{weight}"'
    return f'<text x="{x:.1f}" y="{y:.1f}" {style}>{escape(content)}</text>'


def draw(stalled: Recorded, healthy: Recorded) -> str:
    """SVG: the loss that looks calm above, and below it the context share that does not."""
    loss, other = series(stalled, "loss"), series(healthy, "loss")
    steps = loss[-1][0]
    upper, lower = Panel(TOP, steps, 1.5, 6), Panel(TOP + PANEL + GAP, steps, -10, 0)
    parts = upper.frame("Training loss, nats per byte", [(v, str(v)) for v in (2, 3, 4, 5, 6)])
    parts.append(upper.curve([p for p in other if p[0] <= steps], HEALTHY))
    parts.append(upper.curve(loss, STALLED))
    parts.append(upper.curve([(s, v) for s, v in series(stalled, "unigram_loss") if s > 10], BASELINE, 1.5, "4 6"))
    end = upper.x(steps)
    parts.append(
        text(end, upper.y(3.1) - 40, "Post-LN, lr 1e-3: no better than the unigram loss (dashed)", STALLED, "end")
    )
    parts.append(text(end, upper.y(2.2) + 24, "the same with Pre-LN", HEALTHY, "end"))
    shares = [(v, f"1e{v}" if v else "1") for v in (0, -4, -8)]
    parts += lower.frame("Context share: the part of the output that depends on the position", shares)
    for recorded, colour in ((healthy, HEALTHY), (stalled, STALLED)):
        points = [(s, log10(max(v, 1e-12))) for s, v in series(recorded, "context_share") if s <= steps]
        parts.append(lower.curve(points, colour))
    colours = {"warning": WARNING, "critical": CRITICAL}
    raised = [a for a in stalled.alerts if a.state == "raised" and a.severity in colours]
    for line, alert in enumerate(raised[:2]):
        label = f"stabmon, step {alert.step}: {alert.severity}"
        parts.append(upper.mark(alert.step, label, colours[alert.severity], line))
    waited = patience([value for _, value in loss])
    if waited is not None:
        parts.append(upper.mark(waited, f"{PATIENCE} steps of patience: step {waited}", BASELINE, 0))
    height = TOP + 2 * PANEL + GAP + 40
    opening = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif"'
    return "\n".join(
        [f'{opening} font-size="13">', '<rect width="100%" height="100%" fill="white"/>', *parts, "</svg>\n"]
    )


if __name__ == "__main__":
    first, second, out = (Path(argument) for argument in sys.argv[1:4])
    out.write_text(draw(read(first), read(second)))
