"""What Grafana gives a panel: the answers to its queries, after its transformations."""

from __future__ import annotations

from typing import Any

from tests.dashboards.frames import Frame, table, time_series, transformed
from tests.dashboards.live import STALLED, Prometheus, chosen, put_in
from tests.dashboards.reading import Query, of_panel, panels

POINTS = 150


def choices(prometheus: Prometheus, uid: str) -> list[dict[str, str]]:
    """As Grafana chooses, but for the run that stalls, on two ranks, and two of its layers: dense, and of experts."""
    values = chosen(prometheus, uid)
    if "layer" in values:
        return [{**values, "run": STALLED, "layer": layer} for layer in ("000", "003")]
    return [values if values["run"].startswith("(") else {**values, "run": STALLED}]


def answers(prometheus: Prometheus, query: Query, values: dict[str, str], now: float) -> list[dict[str, Any]]:
    """Of all the time that it has been there."""
    return _answers(prometheus, query.expr, query.instant, values, now)


def _answers(
    prometheus: Prometheus, expr: str, instant: bool, values: dict[str, str], now: float
) -> list[dict[str, Any]]:
    seconds = now - prometheus.started
    expr = put_in(expr, values, seconds)
    return prometheus.instant(expr, now) if instant else prometheus.range(expr, now - seconds, now, seconds / POINTS)


def series_of(prometheus: Prometheus, uid: str, several: list[dict[str, str]], now: float) -> dict[str, int]:
    """Panel -> how many series its queries have, over these choices."""
    return {
        panel["title"]: sum(
            len(answers(prometheus, query, values, now)) for values in several for query in of_panel(uid, panel)
        )
        for panel in panels(uid)
    }


def frames_of(prometheus: Prometheus, panel: dict[str, Any], values: dict[str, str], now: float) -> list[Frame]:
    """After the panel's transformations."""
    frames: list[Frame] = []
    tables = sum(target["format"] == "table" for target in panel["targets"])
    for target in panel["targets"]:
        found = _answers(prometheus, target["expr"], target["instant"], values, now)
        if target["format"] == "table":
            frames += table(found, f"Value #{target['refId']}" if tables > 1 else "Value")
        else:
            frames += time_series(found, target["legendFormat"])
    return transformed(frames, panel["transformations"])
