"""The kinds of panel that the dashboards are made of, each set up once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dashboards.grafana import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    RED,
    Json,
    mapped,
    override,
    panel,
    query,
    steps,
    transformation,
)

_SEEN = {"mode": "multi", "sort": "desc"}
_BELOW = {"displayMode": "list", "placement": "bottom", "showLegend": True, "calcs": []}
_LINE = {"lineWidth": 1, "fillOpacity": 0, "showPoints": "auto", "pointSize": 4, "spanNulls": False}
_LOG = {"scaleDistribution": {"type": "log", "log": 10}}
_DASHED = {"fill": "dash", "dash": [6, 6]}

SEVERITY = mapped(_0=("quiet", "transparent"), _1=("info", BLUE), _2=("warning", ORANGE), _3=("critical", RED))

STATES = {"running": GREEN, "finished": BLUE, "failed": RED, "stopped": GREY, "preempted": ORANGE}
BAD: Json = {"thresholds": steps((None, GREEN), (1, RED)), "color": {"mode": "thresholds"}}
"""Of a number that is to be 0."""
ODD: Json = {"thresholds": steps((None, GREEN), (1, ORANGE)), "color": {"mode": "thresholds"}}
UNREAD: Json = {"noValue": "not read in this run"}
ONE_RANK: Json = {"noValue": "one rank"}
WHOLE: Json = {"min": 0, "decimals": 0}


def curves(title: str, text: str, queries: Sequence[Json], *, log: bool = False, **more: Any) -> Json:
    """Lines over time; with `log` on a logarithmic axis, which ratios and norms need."""
    custom = {**_LINE, **(_LOG if log else {}), **more.pop("custom", {})}
    return panel(
        "timeseries", title, text, queries, options={"legend": _BELOW, "tooltip": _SEEN}, custom=custom, **more
    )


def dashed(name: str, color: str = GREY) -> Json:
    """Override of a line that others are compared with."""
    return override(name, custom_lineStyle=_DASHED, color={"mode": "fixed", "fixedColor": color})


def trend(title: str, text: str, step: str, value: str, name: str, *, log: bool = False, **more: Any) -> Json:
    """A value over the step. Two scrapes may see one step, and the panel refuses an x that does not ascend."""
    custom = {**_LINE, **(_LOG if log else {})}
    fields = {"step": {"operation": "groupby", "aggregations": []}}
    fields[name] = {"operation": "aggregate", "aggregations": ["last"]}
    return panel(
        "trend",
        title,
        text,
        [query(step, "step"), query(value, name)],
        options={"legend": _BELOW, "tooltip": _SEEN, "xField": "step"},
        custom=custom,
        transformations=[
            transformation("joinByField", byField="Time", mode="inner"),
            transformation("groupBy", fields=fields),
            transformation("organize", excludeByName={}, renameByName={f"{name} (last)": name}, indexByName={}),
            transformation("sortBy", fields={}, sort=[{"field": "step", "desc": False}]),
        ],
        overrides=[override("step", unit="none", decimals=0)],
        **more,
    )


def heatmap(title: str, text: str, expr: str, *, unit: str = "none", scheme: str = "Turbo", **more: Any) -> Json:
    """Layer x time. The legend is the bare layer number, so that Grafana sorts rows by number."""
    options = {
        "calculate": False,
        "cellGap": 0,
        "color": {"mode": "scheme", "scheme": scheme, "fill": "dark-orange", "scale": "linear", "steps": 64}
        | {"exponent": 0.5, "reverse": False},
        "exemplars": {"color": "rgba(255,0,255,0.7)"},
        "filterValues": {"le": -1e9},  # the default hides what is below 1e-9
        "legend": {"show": True},
        "rowsFrame": {"layout": "auto"},
        "showValue": "never",
        "tooltip": {"mode": "single", "yHistogram": False, "showColorScale": True},
        "yAxis": {"axisPlacement": "left", "axisLabel": "layer", "reverse": False, "unit": "none", "decimals": 0},
        "cellValues": {"unit": unit},
    }
    size = more.pop("size", (12, 9))
    return panel("heatmap", title, text, [query(expr, "{{layer}}")], unit=unit, options=options, size=size, **more)


def stat(title: str, text: str, queries: Sequence[Json], *, names: bool = False, **more: Any) -> Json:
    """One number, or with `names` the name of the series that is there."""
    options = {
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
        "colorMode": more.pop("color_mode", "value"),
        "graphMode": "none",
        "justifyMode": "center",
        "orientation": "auto",
        "percentChangeColorMode": "standard",
        "showPercentChange": False,
        "textMode": "name" if names else "auto",
        "wideLayout": True,
    }
    size = more.pop("size", (3, 4))
    return panel("stat", title, text, queries, options=options, size=size, **more)


def table(title: str, text: str, queries: Sequence[Json], **more: Any) -> Json:
    options = {"showHeader": True, "frameIndex": 0, "cellHeight": "sm"}
    size = more.pop("size", (12, 8))
    return panel("table", title, text, queries, options=options, size=size, custom={"align": "auto"}, **more)


def timeline(title: str, text: str, queries: Sequence[Json], **more: Any) -> Json:
    """States over time: 0 quiet, 1 info, 2 warning, 3 critical."""
    options = {
        "alignValue": "center",
        "mergeValues": True,
        "rowHeight": 0.8,
        "showValue": "auto",
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": False, "calcs": []},
        "tooltip": {"mode": "single", "sort": "none"},
    }
    defaults = {"mappings": SEVERITY, "color": {"mode": "fixed", "fixedColor": GREEN}}
    size = more.pop("size", (12, 9))
    custom = {"fillOpacity": 80, "lineWidth": 0}
    return panel(
        "state-timeline", title, text, queries, options=options, defaults=defaults, custom=custom, size=size, **more
    )


def profile(title: str, text: str, expr: str, *, log: bool = True, **more: Any) -> Json:
    """Bars over the layers, as it is now."""
    options = {
        "xField": "layer",
        "orientation": "vertical",
        "showValue": "never",
        "stacking": "none",
        "legend": {**_BELOW, "showLegend": False},
        "tooltip": {"mode": "single", "sort": "none"},
        "barWidth": 0.9,
        "groupWidth": 0.7,
        "fullHighlight": False,
        "xTickLabelMaxLength": 0,
        "xTickLabelRotation": 0,
        "xTickLabelSpacing": 0,
    }
    custom = {"fillOpacity": 70, "lineWidth": 0, **(_LOG if log else {})}
    return panel(
        "barchart",
        title,
        text,
        [query(expr, instant=True, table=True)],
        options=options,
        custom=custom,
        transformations=[
            transformation("organize", excludeByName={"Time": True}, renameByName={"Value": title}, indexByName={}),
            transformation("sortBy", fields={}, sort=[{"field": "layer", "desc": False}]),
        ],
        **more,
    )


def against_step(title: str, text: str, step: str, value: str, name: str, *, log: bool = False, **more: Any) -> Json:
    """Several runs over the step: each run is a frame of its own, with x and y."""
    options = {
        "mapping": "auto",
        "series": [
            {axis: {"matcher": {"id": "byName", "options": field}} for axis, field in (("x", "step"), ("y", name))}
        ],
        "legend": _BELOW,
        "tooltip": {"mode": "single", "sort": "none"},
    }
    custom = {"show": "lines", "lineWidth": 1, "pointSize": {"fixed": 4}, **(_LOG if log else {})}
    renamed = {"Value #A": "step", "Value #B": name}
    return panel(
        "xychart",
        title,
        text,
        [query(step, table=True), query(value, table=True)],
        options=options,
        custom=custom,
        transformations=[
            transformation("merge"),
            transformation("organize", excludeByName={"Time": True}, renameByName=renamed, indexByName={}),
            transformation("partitionByValues", fields=["run"], keepFields=False, naming={"asLabels": True}),
        ],
        overrides=[override("step", unit="none", decimals=0, custom_scaleDistribution={"type": "linear"})],
        **more,
    ) | {"pluginVersion": "11.1.0"}  # older ones are taken to hold what options were before it
