"""What Grafana gives a panel: the answers to its queries, after its transformations."""

from __future__ import annotations

from typing import Any

from tests.dashboards.frames import Frame, table, time_series, transformed
from tests.dashboards.live import Prometheus, put_in

SECONDS, POINTS = 300.0, 150


def frames_of(prometheus: Prometheus, panel: dict[str, Any], values: dict[str, str], now: float) -> list[Frame]:
    """After the panel's transformations."""
    frames: list[Frame] = []
    tables = sum(target["format"] == "table" for target in panel["targets"])
    for target in panel["targets"]:
        expr = put_in(target["expr"], values, SECONDS)
        answers = (
            prometheus.instant(expr, now)
            if target["instant"]
            else prometheus.range(expr, now - SECONDS, now, SECONDS / POINTS)
        )
        if target["format"] == "table":
            frames += table(answers, f"Value #{target['refId']}" if tables > 1 else "Value")
        else:
            frames += time_series(answers, target["legendFormat"])
    return transformed(frames, panel["transformations"])
