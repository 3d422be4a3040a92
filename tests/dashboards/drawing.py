"""Draws a panel with what it is given, somewhat as Grafana does: to see what is empty, crowded or out of scale."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter

from tests.dashboards.frames import Frame

_COLORS = {0.0: "#eeeeee", 1.0: "tab:blue", 2.0: "tab:orange", 3.0: "tab:red"}
_SMALL = 6


def shown(value: object, unit: str) -> str:
    if not isinstance(value, float):
        return "" if value is None else str(value)
    if not math.isfinite(value):
        return str(value)
    if unit == "percentunit":
        return f"{100 * value:.3g}%"
    if unit == "s":
        return f"{1000 * value:.3g} ms" if abs(value) < 1 else f"{value:.3g} s"
    return f"{value:.3e}" if unit == "sci" else f"{value:.4g}"


def draw(axes: Axes, panel: Mapping[str, Any], frames: Sequence[Frame]) -> None:
    axes.set_title(panel["title"], fontsize=8, loc="left")
    axes.tick_params(labelsize=_SMALL)
    filled = [frame for frame in frames if frame and all(len(values) for values in frame.values())]
    if not filled:
        axes.text(0.5, 0.5, panel["fieldConfig"]["defaults"].get("noValue", "NO DATA"), ha="center", color="red")
        return
    _KINDS[panel["type"]](axes, panel, filled)


def _unit(panel: Mapping[str, Any]) -> str:
    return str(panel["fieldConfig"]["defaults"]["unit"])


def _lines(axes: Axes, panel: Mapping[str, Any], frames: Sequence[Frame]) -> None:
    """x is the first column; the colours of more than ten lines repeat, as in Grafana."""
    dashed = {o["matcher"]["options"] for o in panel["fieldConfig"]["overrides"] if "lineStyle" in str(o["properties"])}
    bars = panel["fieldConfig"]["defaults"].get("custom", {}).get("drawStyle") == "bars"
    for frame in frames:
        x, *others = frame
        start = frames[0][x][0] if x == "Time" else 0.0
        for name in others:
            at, values = [float(a) - start for a in frame[x]], [math.nan if v is None else v for v in frame[name]]
            style = "--" if name in dashed else "-"
            axes.plot(
                at, values, "s" if bars else style, label=name, lw=1, ms=3, color="gray" if name in dashed else None
            )
    _scale(axes, panel)
    axes.set_xlabel("s" if next(iter(frames[0])) == "Time" else next(iter(frames[0])), fontsize=_SMALL)
    axes.legend(fontsize=5, ncols=2, loc="best")


def _scale(axes: Axes, panel: Mapping[str, Any]) -> None:
    defaults = panel["fieldConfig"]["defaults"]
    if defaults.get("custom", {}).get("scaleDistribution", {}).get("type") == "log":
        axes.set_yscale("log")
    if "min" in defaults:
        axes.set_ylim(bottom=defaults["min"])
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: shown(float(value), _unit(panel))))


def _heatmap(axes: Axes, panel: Mapping[str, Any], frames: Sequence[Frame]) -> None:
    names = sorted((next(name for name in frame if name != "Time") for frame in frames), key=float)
    times = sorted({at for frame in frames for at in frame["Time"]})
    grid = np.full((len(names), len(times)), np.nan)
    for frame in frames:
        name = next(name for name in frame if name != "Time")
        grid[names.index(name), np.searchsorted(times, frame["Time"])] = frame[name]
    drawn = axes.pcolormesh(np.array(times) - times[0], range(len(names)), grid, cmap="turbo", shading="nearest")
    axes.set_yticks(range(len(names)), names)
    assert axes.figure is not None
    axes.figure.colorbar(drawn, ax=axes).ax.tick_params(labelsize=_SMALL)


def _stat(axes: Axes, panel: Mapping[str, Any], frames: Sequence[Frame]) -> None:
    axes.set_axis_off()
    name = next(name for name in frames[-1] if name != "Time")
    value, defaults = frames[-1][name][-1], panel["fieldConfig"]["defaults"]
    mapped = {k: v["text"] for m in defaults.get("mappings", []) for k, v in m["options"].items()}
    text = name if panel["options"]["textMode"] == "name" else mapped.get(f"{value:g}", shown(value, _unit(panel)))
    steps = defaults.get("thresholds", {}).get("steps", [])
    colors = [step["color"] for step in steps if step["value"] is None or value >= step["value"]]
    axes.text(0.5, 0.4, text, ha="center", fontsize=14, color=colors[-1] if colors else "green")


def _table(axes: Axes, panel: Mapping[str, Any], frames: Sequence[Frame]) -> None:
    axes.set_axis_off()
    (frame,) = frames
    units = {
        o["matcher"]["options"]: p["value"]
        for o in panel["fieldConfig"]["overrides"]
        for p in o["properties"]
        if p["id"] == "unit"
    }
    rows = [
        [shown(frame[name][i], units.get(name, _unit(panel))) for name in frame]
        for i in range(len(next(iter(frame.values()))))
    ]
    made = axes.table(rows[:12], colLabels=list(frame), loc="upper left", cellLoc="left")
    made.auto_set_font_size(False)
    made.set_fontsize(_SMALL)


def _timeline(axes: Axes, panel: Mapping[str, Any], frames: Sequence[Frame]) -> None:
    first = min(frame["Time"][0] for frame in frames)
    for row, frame in enumerate(frames):
        name = next(name for name in frame if name != "Time")
        step = frame["Time"][1] - frame["Time"][0] if len(frame["Time"]) > 1 else 1.0
        for at, value in zip(frame["Time"], frame[name], strict=True):
            axes.barh(row, step, left=at - first, color=_COLORS[value], height=0.8)
    axes.set_yticks(range(len(frames)), [next(name for name in frame if name != "Time") for frame in frames])


def _bars(axes: Axes, panel: Mapping[str, Any], frames: Sequence[Frame]) -> None:
    (frame,) = frames
    x = panel["options"]["xField"]
    value = next(name for name in frame if name != x)
    axes.bar(frame[x], frame[value])
    _scale(axes, panel)


_KINDS: dict[str, Callable[[Axes, Mapping[str, Any], Sequence[Frame]], None]] = {
    "timeseries": _lines,
    "trend": _lines,
    "xychart": _lines,
    "heatmap": _heatmap,
    "stat": _stat,
    "table": _table,
    "state-timeline": _timeline,
    "barchart": _bars,
}
