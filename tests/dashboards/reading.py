"""The committed dashboards, taken apart: panels, queries, and what PromQL stands in them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import promql_parser

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "dashboards"
UIDS = ("stabmon-runs", "stabmon-run", "stabmon-layer", "stabmon-compare", "stabmon-ranks", "stabmon-exporter")
_BUILT_IN = {"__rate_interval", "__range", "__interval", "__value", "__url_time_range", "__all"}
_VARIABLE = re.compile(r"\$\{?(\w+)")


@dataclass(frozen=True)
class Query:
    """One query of a dashboard, and where it stands."""

    dashboard: str
    panel: str
    expr: str
    legend: str = ""
    instant: bool = False

    def __str__(self) -> str:
        return f"{self.dashboard}: {self.panel}: {self.expr}"


def load(uid: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((FOLDER / f"{uid}.json").read_text(encoding="utf-8"))
    return found


def panels(uid: str) -> list[dict[str, Any]]:
    """Without rows."""
    return [panel for panel in load(uid)["panels"] if panel["type"] != "row"]


def of_panel(uid: str, panel: dict[str, Any]) -> list[Query]:
    return [Query(uid, panel["title"], t["expr"], t["legendFormat"], t["instant"]) for t in panel["targets"]]


def queries(uid: str) -> list[Query]:
    """Of all panels."""
    return [query for panel in panels(uid) for query in of_panel(uid, panel)]


def annotations(uid: str) -> list[Query]:
    """Those that ask Prometheus."""
    return [Query(uid, f"annotation {a['name']}", a["expr"]) for a in load(uid)["annotations"]["list"] if "expr" in a]


def variables(uid: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = load(uid)["templating"]["list"]
    return found


def used_variables(node: object) -> set[str]:
    """Names of the variables anywhere in it, without Grafana's own and without what `label_replace` refers to."""
    return {n for n in _VARIABLE.findall(json.dumps(node)) if not n.isdigit()} - _BUILT_IN


def with_times(expr: str) -> str:
    """What Grafana puts in, so that PromQL can be read; other variables stand in strings, where they may stay."""
    return expr.replace("$__rate_interval", "1m").replace("$__range", "1h").replace("$__interval", "15s")


@dataclass(frozen=True)
class Selector:
    """`name{labels}`; `under`: the functions and aggregations around it, from the outside in."""

    name: str
    labels: frozenset[str]
    under: tuple[str, ...]
    over: str
    """The range's text in the dashboard; "" without one."""


def selectors(expr: str) -> list[Selector]:
    """ValueError: no PromQL."""
    ranges = re.findall(r"\[([^\]]+)\]", expr)
    found = list(_walk(promql_parser.parse(with_times(expr)), ()))
    with_range = [s for s in found if s.over]
    assert len(with_range) == len(ranges)
    texts = iter(ranges)
    return [Selector(s.name, s.labels, s.under, next(texts)) if s.over else s for s in found]


def _walk(node: Any, under: tuple[str, ...], over: str = "") -> Iterator[Selector]:
    kind = type(node).__name__
    if kind == "VectorSelector":
        yield Selector(str(node.name), frozenset(m.name for m in node.matchers.matchers), under, over)
    elif kind == "MatrixSelector":
        yield from _walk(node.vector_selector, under, "range")
    elif kind == "Call":
        for argument in node.args:
            yield from _walk(argument, (*under, node.func.name))
    elif kind == "BinaryExpr":
        yield from _walk(node.lhs, under)
        yield from _walk(node.rhs, under)
    elif kind == "AggregateExpr":
        yield from _walk(node.expr, (*under, str(node.op)))
    elif hasattr(node, "expr"):
        yield from _walk(node.expr, under)
