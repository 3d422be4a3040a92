"""Draws a view for a terminal of 60 columns or more, the most important first: what does not fit is cut below."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.style import Style
from rich.table import Table
from rich.text import Text

from stabmon.server.models import AlertRow, Place
from stabmon.server.verdict import RECORDED, Level
from stabmon.watch.view import SIGNALS, Signal, View
from stabmon.watch.words import age, factor, number, percent, plain, seconds, spark

WIDEST = 200
_WITH_CURVES = 100
"""Columns from which a signal has its curve."""
_STYLES: dict[Level, str] = {
    "healthy": "bold green",
    "info": "bold cyan",
    "warning": "bold yellow",
    "critical": "bold red",
    "silent": "bold yellow",
    "ended": "bold",
}
_MARKS: dict[Level, str] = {
    "healthy": "✓", "info": "i", "warning": "!", "critical": "✖", "silent": "…", "ended": "■",
}  # fmt: skip
_FAINT = Style(dim=True)
_LABEL = 13
"""Columns of what a row is called."""


def draw(view: View, width: int, notice: str = "") -> RenderableType:
    """`notice`: why it is not as new as it might be."""
    width = min(width, WIDEST)
    told = Text(plain(notice), style="bold reverse yellow") if notice else None
    parts = (
        told,
        _head(view, width),
        _verdict(view),
        _loss(view, width),
        _signals(view, width),
        _alerts(view),
        _cost(view),
    )
    return Group(*(part for part in parts if part is not None))


def _head(view: View, width: int) -> RenderableType:
    newest = f"newest step {age(view.age)}" if view.age is not None else "no step yet"
    about = f"  {view.state or RECORDED}  step {view.step:,}"
    line = Table.grid(expand=False, padding=(0, 1))
    line.width = width
    line.add_column(ratio=1, no_wrap=True)
    line.add_column(justify="right", no_wrap=True)
    name = Text(plain(view.run), style="bold cyan")
    name.truncate(max(8, width - len("stabmon ") - len(about) - len(newest) - 2), overflow="ellipsis")
    left = Text.assemble(("stabmon ", "bold"), name, about)
    line.add_row(left, Text(newest, style="bold yellow" if view.silent else _FAINT))
    return line


def _verdict(view: View) -> RenderableType:
    words, style = view.verdict, _STYLES[view.verdict.level]
    return Text.assemble((f"{_MARKS[words.level]} {plain(words.title)}", style), f"\n{plain(words.text)}\n")


def _loss(view: View, width: int) -> RenderableType | None:
    if view.loss is None:
        return None
    means = {"loss": view.mean_loss, **view.baselines}
    rungs = [(name, value) for name, value in means.items() if value is not None]
    ladder = Text(" › ", style=_FAINT).join(
        Text(f"{plain(name)} {number(value)}", style="bold" if name == "loss" else "")
        for name, value in sorted(rungs, key=lambda rung: -rung[1])
    )
    if view.eval_loss is not None:
        ladder.append(f"  evaluation {number(view.eval_loss)}")
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(min_width=_LABEL, no_wrap=True)
    table.add_row(
        Text(f"loss {number(view.loss)}"), Text(spark(view.losses, width - _LABEL - 2), style="cyan", no_wrap=True)
    )
    table.add_row(Text("recent mean"), ladder)
    return Group(table, Text())


def _signals(view: View, width: int) -> RenderableType | None:
    if not view.signals:
        return None
    wide = width >= _WITH_CURVES
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(min_width=_LABEL, no_wrap=True)
    for _ in range(3):
        table.add_column(no_wrap=True, overflow="ellipsis")
    table.add_row(*(Text(head, style=_FAINT) for head in ("", "lowest", "highest", "changed most")))
    for signal in view.signals:
        table.add_row(*_signal(signal, wide, width))
    return Group(table, Text())


def _signal(signal: Signal, wide: bool, width: int) -> Iterator[Text]:
    yield Text(SIGNALS[signal.statistic])
    for end in (signal.lowest, signal.highest):
        style = "bold magenta" if number(end.value) == "not finite" else ""
        yield Text.assemble((number(end.value), style), (f" {_place(end.place, False)}", _FAINT))
    moved = Text.assemble((f"{factor(signal.factor)} ", "bold"), _place(signal.moved, wide))
    if wide:
        moved.append(f" since step {signal.since:,} ", style=_FAINT)
        moved.append(spark(signal.curve, max(8, width - 100)), style="cyan")
    yield moved


def _alerts(view: View) -> RenderableType | None:
    if not view.alerts:
        return None
    said = f"{view.verdict.title} {view.verdict.text}"
    return Group(*(part for alert in view.alerts for part in _alert(alert, said)))


def _alert(alert: AlertRow, said: str) -> Iterator[RenderableType]:
    where = "" if alert.layer is None else f", layer {alert.layer} ({plain(alert.site)})"
    mark = f", {alert.mark.kind.replace('_', ' ')}" if alert.mark else ""
    head = f"{_MARKS[alert.severity]} {alert.severity} {plain(alert.detector)}"
    yield Text.assemble((head, _STYLES[alert.severity]), f" since step {alert.since:,}{where}{mark}")
    lines = [] if _told(alert.action, said) else [alert.action]
    lines += [f"First: {remedy}" for remedy in alert.remedies[:1]]
    lines.append(f"More: stabmon runbook {alert.detector}")
    yield Padding(Text(f"{chr(10).join(map(plain, lines))}\n"), (0, 0, 0, 2))


def _told(action: str, said: str) -> bool:
    """Whether a clause of what to do stands above already: the verdict begins it in its own words."""
    clauses = re.split(r"[.:;] ", action.lower().rstrip("."))
    return any(clause in said.lower() for clause in clauses[1:] or clauses)


def _cost(view: View) -> RenderableType:
    recent, whole = view.cost.recent_ratio, view.cost.total_ratio
    text = f"stabmon takes {seconds(view.cost.recent_seconds)} a step, {percent(recent)}"
    return Text(f"{text} (whole run {percent(whole)})", style=_FAINT)


def _place(place: Place, whole: bool) -> str:
    name = plain(place.name)
    if place.layer is None:
        return name if whole else plain(place.role) or name
    return f"layer {place.layer} ({name})" if whole else f"layer {place.layer}"
