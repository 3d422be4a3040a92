"""stabmon / Compare runs: several runs over the step, which is what they have in common."""

from __future__ import annotations

from typing import Any

from dashboards.grafana import Json, dashboard, query, row
from dashboards.kinds import against_step, curves
from dashboards.selecting import JOB, RUNS, notes, of_layer, series, statistic

UID = "stabmon-compare"


def board() -> Json:
    return dashboard(
        UID,
        "stabmon / Compare runs",
        "Runs side by side. Over the step they can be compared although they did not run at the same time.",
        [JOB, RUNS],
        notes(many=True),
        [
            row("Over the step"),
            _over_step("Loss", "Of the step.", statistic("loss", many=True), "loss", unit="none"),
            _over_step("Gradient norm", "Of all gradients.", statistic("total_grad_norm", many=True), "norm"),
            _over_step("Position-dependent output", "Near 0: stalled.", statistic("context_share", many=True), "share"),
            _over_step("Largest output change of a layer", "Of one update.", _worst("output_change_ratio"), "ratio"),
            row("Over time"),
            _over_time("Loss", "Of the step.", f"max by (run) ({statistic('loss', many=True)})", log=True),
            _over_time(
                "Learning rate",
                "Of the first parameter group.",
                f"max by (run) ({statistic('learning_rate', many=True)})",
                unit="sci",
            ),
            _over_time(
                "Largest gradient of a layer", "Norm, before clipping.", _worst("grad_norm"), unit="sci", log=True
            ),
            _over_time("Largest update of a layer", "Update / weights.", _worst("update_ratio"), unit="sci", log=True),
            _over_time(
                "Spread of the norms' gain",
                "Largest / smallest of the layers.",
                _spread("norm_gain"),
                unit="sci",
                log=True,
            ),
            _over_time(
                "Lower / upper gradient",
                "First layer's gradient / largest of the layers.",
                _lower(),
                unit="sci",
                log=True,
            ),
        ],
    )


def _over_step(title: str, text: str, expr: str, name: str, *, unit: str = "sci") -> Json:
    step = f"max by (run) ({series('step', many=True)})"
    return against_step(title, text, step, f"max by (run) ({expr})", name, log=True, unit=unit, size=(12, 9))


def _over_time(title: str, text: str, expr: str, **more: Any) -> Json:
    return curves(title, text, [query(expr, "{{run}}")], **more)


def _worst(name: str) -> str:
    return f"max by (run) ({of_layer(name, many=True)})"


def _spread(name: str) -> str:
    gain = statistic(name, 'layer!=""', many=True)
    return f"max by (run) ({gain}) / min by (run) ({gain})"


def _lower() -> str:
    first = statistic("grad_norm", 'layer="000"', many=True)
    return f"max by (run) ({first}) / {_worst('grad_norm')}"
