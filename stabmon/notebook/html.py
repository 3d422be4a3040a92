"""A run as a notebook shows it: static HTML that needs no script, no style sheet and no network."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from stabmon.notebook.chart import WIDTH, Curve, Mark, chart
from stabmon.notebook.heatmap import VIRIDIS, picture
from stabmon.records import Alert, figure
from stabmon.server import answers
from stabmon.server.history import History
from stabmon.server.models import Words
from stabmon.server.standing import BASELINES
from stabmon.server.verdict import RECORDED, Level

POINTS, COLUMNS = 600, 240
_LOSS = "#0072b2"
_DASHED = ("#56b4e9", "#009e73", "#cc79a7", "#999999")
_COLOURS: dict[Level, str] = {
    "healthy": "#009e73", "info": "#56b4e9", "warning": "#e69f00", "critical": "#d55e00",
    "silent": "#e69f00", "ended": "#888888",
}  # fmt: skip
_PICTURES = ("norm_input_msq", "norm_gain", "grad_norm", "output_change_ratio")
"""The first that the run has is shown."""


def html(history: History, note: str = "") -> str:
    """Everything that comes from the run is escaped. `note`: what is said above."""
    parts = [f"<p><em>{escape(note)}</em></p>"] if note else []
    if history.run is not None:
        words = answers.words(history)
        parts += [_verdict(history, words), _loss(history), _picture(history)]
        parts += (_alert(alert, f"{words.title} {words.text}") for alert in history.open_alerts())
    return f'<div class="stabmon" style="max-width:{WIDTH}px;line-height:1.4">{"".join(parts)}</div>'


def _verdict(history: History, words: Words) -> str:
    assert (run := history.run) is not None
    about = " · ".join(
        part for part in (run.name, run.model, f"{history.state or RECORDED}, step {history.step:,}") if part
    )
    return (
        f'<div style="border-left:6px solid {_COLOURS[words.level]};padding:2px 10px;margin:4px 0">'
        f"<small>{escape(about)}</small><br><strong>{escape(words.title)}</strong><br>{escape(words.text)}</div>"
    )


def _loss(history: History) -> str:
    curves = [_curve(history, "loss", _LOSS)]
    for i, name in enumerate(name for name in BASELINES if history.sites(name)):
        curves.append(_curve(history, name, _DASHED[i % len(_DASHED)], dashed=True))
    marks = [
        Mark(alert.step, _COLOURS[alert.severity], f"{alert.severity}, step {alert.step:,}: {alert.action}")
        for alert in history.alerts
        if alert.state == "raised"
    ]
    drawn = chart("Loss with its baselines, over the steps", curves, marks)
    if not drawn:
        return ""
    legend = " ".join(_named(curve) for curve in curves if curve.finite())
    return f"<div><small>{legend} (nats)</small>{drawn}</div>"


def _named(curve: Curve) -> str:
    line = "╌╌" if curve.dashed else "━"
    return f'<span style="color:{curve.colour}">{line}</span> {escape(curve.name.replace("_", " "))}'


def _curve(history: History, statistic: str, colour: str, dashed: bool = False) -> Curve:
    found = answers.series(history, statistic, [], 0, history.step, POINTS)
    low, high = (found.lines[0].low, found.lines[0].high) if found.lines else ([], [])
    return Curve(statistic, colour, found.steps if found.lines else [], low, high, dashed)


def _picture(history: History) -> str:
    statistic = next((name for name in _PICTURES if history.sites(name)), None)
    if statistic is None:
        return ""
    layers = answers.layers(history, statistic, 0, history.step, COLUMNS)
    found = picture(layers.values)
    if found is None:
        return ""
    uri, low, high = found
    height = min(240, max(60, 10 * len(layers.sites)))
    last = layers.sites[-1].name
    bar = f"background:linear-gradient(90deg,{','.join(f'#{colour}' for colour in VIRIDIS)})"
    return (
        f"<div><small>{escape(statistic)} of {len(layers.sites)} layers, the last ({escape(last)}) on top, steps "
        f'{layers.steps[0]:,} to {history.step:,}: {low:.3g} <span style="display:inline-block;width:120px;height:9px;'
        f'{bar}"></span> {high:.3g}</small><br><img src="{uri}" alt="{escape(layers.help)}" style="width:100%;'
        f'height:{height}px;image-rendering:pixelated"></div>'
    )


def _alert(alert: Alert, said: str) -> str:
    where = "" if alert.layer is None else f", layer {alert.layer} ({alert.site})"
    head = f"{alert.severity} · {alert.detector} · since step {alert.since:,}{where}"
    if alert.action.lower() not in said.lower():
        head += f": {alert.action}"
    remedies = "".join(f"<li>{escape(remedy)}</li>" for remedy in alert.remedies)
    dot = f'<span style="color:{_COLOURS[alert.severity]}">●</span>'
    shown = " open" if alert.severity == "critical" else ""
    return (
        f'<details style="margin:4px 0"{shown}><summary>{dot} {escape(head)}</summary>'
        f"{''.join(_details(alert))}<ol>{remedies}</ol></details>"
    )


def _details(alert: Alert) -> Iterator[str]:
    if alert.cause:
        yield f"<p>Cause: {escape(alert.cause)}</p>"
    if alert.evidence:
        evidence = ", ".join(f"{name} {figure(value)}" for name, value in alert.evidence.items())
        yield f"<p>Evidence: {escape(evidence)}</p>"
    yield f"<p>More: <code>stabmon runbook {escape(alert.detector)}</code></p>"
