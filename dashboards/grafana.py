"""Grafana's JSON as plain dicts: queries, panels, variables, and the dashboard around them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

Json = dict[str, Any]

SCHEMA_VERSION = 39
"""Every Grafana since 10.4 takes it and migrates it upwards."""
SOURCE: Json = {"type": "prometheus", "uid": "${datasource}"}
_WIDTH = 24
_METRIC = re.compile(r"\b(?:stabmon_\w+|ALERTS|up|scrape_\w+)\b")

GREEN, BLUE, ORANGE, RED, GREY = "green", "blue", "orange", "red", "#8e8e8e"


def query(expr: str, legend: str = "", *, instant: bool = False, table: bool = False) -> Json:
    """One target; its refId is given by its place in the panel."""
    return {
        "datasource": SOURCE,
        "editorMode": "code",
        "expr": expr,
        "legendFormat": legend or "__auto",
        "format": "table" if table else "time_series",
        "instant": instant,
        "range": not instant,
    }


def panel(
    kind: str,
    title: str,
    text: str,
    queries: Sequence[Json],
    *,
    unit: str = "none",
    size: tuple[int, int] = (8, 8),
    options: Json | None = None,
    custom: Json | None = None,
    defaults: Json | None = None,
    overrides: Sequence[Json] = (),
    transformations: Sequence[Json] = (),
) -> Json:
    """A panel without id and place. Its description ends with the names of its metrics, to be searched for."""
    names = sorted({name for target in queries for name in _METRIC.findall(target["expr"])})
    label = "Metric" if len(names) == 1 else "Metrics"
    return {
        "type": kind,
        "title": title,
        "description": f"{text} {label}: {', '.join(f'`{name}`' for name in names)}",
        "datasource": SOURCE,
        "targets": [{"refId": chr(ord("A") + i), **target} for i, target in enumerate(queries)],
        "fieldConfig": {
            "defaults": {"unit": unit, **({"custom": custom} if custom else {}), **(defaults or {})},
            "overrides": list(overrides),
        },
        "options": options or {},
        "transformations": list(transformations),
        "gridPos": {"w": size[0], "h": size[1]},
    }


def row(title: str) -> Json:
    return {"type": "row", "title": title, "collapsed": False, "panels": [], "gridPos": {"w": _WIDTH, "h": 1}}


def override(name: str, **properties: Any) -> Json:
    """Of the field of that name; `custom_width` is Grafana's `custom.width`."""
    listed = [{"id": key.replace("custom_", "custom."), "value": value} for key, value in properties.items()]
    return {"matcher": {"id": "byName", "options": name}, "properties": listed}


def mapped(**texts: tuple[str, str]) -> list[Json]:
    """Value (its digits after an underscore) -> text and colour."""
    options = {
        value.lstrip("_"): {"index": i, "text": text, "color": color}
        for i, (value, (text, color)) in enumerate(texts.items())
    }
    return [{"type": "value", "options": options}]


def steps(*pairs: tuple[float | None, str]) -> Json:
    """Thresholds: from that value on that colour; the first has none."""
    return {"mode": "absolute", "steps": [{"value": value, "color": color} for value, color in pairs]}


def transformation(name: str, **options: Any) -> Json:
    return {"id": name, "options": options}


def variable(name: str, label: str, text: str, expr: str, *, multi: bool = False, sort: int = 1) -> Json:
    """A variable of label values; `multi` allows several, and begins with all."""
    return {
        "type": "query",
        "name": name,
        "label": label,
        "description": text,
        "datasource": SOURCE,
        "query": {"query": expr, "refId": f"var-{name}", "qryType": 1},
        "definition": expr,
        "refresh": 2,
        "sort": sort,
        "multi": multi,
        "includeAll": multi,
        "regex": "",
        "skipUrlSync": False,
        "hide": 0,
        "options": [],
        # What is not among the options gives way to the first of them.
        "current": {"text": ["All"], "value": ["$__all"]} if multi else {"text": "", "value": ""},
    }


def source_variable() -> Json:
    return {
        "type": "datasource",
        "name": "datasource",
        "label": "Data source",
        "description": "The Prometheus that scrapes stabmon.",
        "query": "prometheus",
        "regex": "",
        "refresh": 1,
        "multi": False,
        "includeAll": False,
        "skipUrlSync": False,
        "hide": 0,
        "options": [],
        "current": {"text": "default", "value": "default"},
    }


def annotation(name: str, expr: str, title: str, text: str, color: str) -> Json:
    return {
        "name": name,
        "datasource": SOURCE,
        "enable": True,
        "hide": False,
        "iconColor": color,
        "expr": expr,
        "step": "",
        "titleFormat": title,
        "textFormat": text,
        "useValueForTime": False,
    }


def marks(tags: Sequence[str]) -> Json:
    """Grafana's own annotations with all these tags; off until somebody switches them on."""
    return {
        "name": "Marks",
        "datasource": {"type": "grafana", "uid": "-- Grafana --"},
        "enable": False,
        "hide": False,
        "iconColor": "purple",
        "target": {"type": "tags", "tags": list(tags), "matchAny": False, "limit": 100},
    }


def link(title: str, uid: str = "") -> Json:
    """To one dashboard, or without `uid` to all of stabmon, with time range and variables kept."""
    common = {"title": title, "icon": "external link", "includeVars": True, "keepTime": True, "targetBlank": False}
    common |= {"tooltip": "", "tags": [] if uid else ["stabmon"], "asDropdown": not uid}
    return common | ({"type": "link", "url": f"/d/{uid}"} if uid else {"type": "dashboards", "url": ""})


def dashboard(
    uid: str, title: str, text: str, variables: Iterable[Json], annotations: Iterable[Json], panels: Sequence[Json]
) -> Json:
    return {
        "uid": uid,
        "title": title,
        "description": text,
        "tags": ["stabmon"],
        "schemaVersion": SCHEMA_VERSION,
        "version": 1,
        "editable": False,
        "graphTooltip": 1,
        "fiscalYearStartMonth": 0,
        "timezone": "browser",
        "time": {"from": "now-1h", "to": "now"},
        "refresh": "15s",
        "timepicker": {},
        "links": [link("stabmon")],
        "templating": {"list": [source_variable(), *variables]},
        "annotations": {"list": list(annotations)},
        "panels": _placed(panels),
    }


def _placed(panels: Sequence[Json]) -> list[Json]:
    """Left to right, a new line where the next does not fit; all of a line are as high as its highest."""
    placed: list[Json] = []
    x = y = height = 0
    for number, given in enumerate(panels, 1):
        size = given["gridPos"]
        if x + size["w"] > _WIDTH:
            x, y, height = 0, y + height, 0
        placed.append({**given, "id": number, "gridPos": {**size, "x": x, "y": y}})
        x, height = x + size["w"], max(height, size["h"])
    return placed
