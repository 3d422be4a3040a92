"""stabmon / Layer: one layer of one run, every statistic of the catalog that is read per layer."""

from __future__ import annotations

from typing import Any

from dashboards.grafana import BLUE, GREY, Json, dashboard, link, override, query, row, transformation, variable
from dashboards.kinds import UNREAD, curves, dashed, table
from dashboards.selecting import JOB, RUN, notes, series, statistic
from stabmon.catalog import PEAKS, STATISTICS, Statistic, activations, attention, blocks, norms, optimizer

UID = "stabmon-layer"
_LAYERS = 'label_values(stabmon_layer_info{job=~"$job", run="$run", layer!=""}, layer)'
_LAYER = variable("layer", "Layer", "In forward order, from 000.", _LAYERS)
_HEADLINES = ("norm_input_msq", "grad_norm", "output_change_ratio", "update_ratio")
_ROWS: tuple[tuple[Any, str, Json], ...] = (
    (norms, "Norms of the layer", UNREAD),
    (blocks, "Weights, gradients and updates of the layer", UNREAD),
    (activations, "Activations, branches, hidden units (levels standard and deep)", UNREAD),
    (optimizer, "What the optimizer's state says (levels standard and deep)", UNREAD),
    (attention, "Attention and experts (level deep)", UNREAD),
)
_SHARES = ("share", "cosine", "entropy", "entropy_min", "similarity", "experts", "spread", "channel", "headroom")
"""What the names end with of statistics that stay within an order of magnitude or two, or may be below 0."""


def board() -> Json:
    panels = [row("Layer $layer among the layers"), *map(_among, _HEADLINES)]
    for part, title, defaults in _ROWS:
        rest = [r for r in part.TABLE if r.exported and r.scope != "model" and r.name not in _HEADLINES]
        panels += [row(title), *(_alone(r, defaults) for r in rest)]
    return dashboard(
        UID,
        "stabmon / Layer",
        "One layer of a run beside the others: who moved first, and by how much.",
        [JOB, RUN, _LAYER],
        notes(),
        [*panels, *_outside(), *_names()],
    ) | {"links": [link("stabmon"), link("Run", "stabmon-run")]}


def _title(name: str) -> str:
    words = name.replace("_msq", " (mean square)").replace("_rms", " RMS").replace("_", " ")
    return "RMS_t" if name == "rms_t" else words[0].upper() + words[1:]


def _unit(name: str) -> str:
    return "none" if name.endswith(_SHARES) else "sci"


def _among(name: str) -> Json:
    others = statistic(name, 'layer!=""')
    role = STATISTICS[name].scope
    lines = [query(statistic(name, 'layer="$layer"'), f"{{{{{role}}}}}")]
    if name in PEAKS:
        lines.append(
            query(statistic(name, 'layer="$layer"', suffix="_window_max"), f"{{{{{role}}}}}, last minute's highest")
        )
    lines += [query(f"{how}({others})", f"{text} of all layers") for how, text in _BAND.items()]
    return curves(
        _title(name),
        f"{STATISTICS[name].help} Dashed: all layers.",
        lines,
        unit="sci",
        log=True,
        size=(12, 9),
        overrides=[dashed(f"{text} of all layers", BLUE if how == "avg" else GREY) for how, text in _BAND.items()],
    )


_BAND = {"min": "lowest", "max": "highest", "avg": "mean"}


def _alone(found: Statistic, defaults: Json) -> Json:
    median = f"quantile(0.5, {statistic(found.name, 'layer!=' + chr(34) * 2)})"
    return curves(
        _title(found.name),
        f"{found.help} Dashed: median of all layers.",
        [
            query(statistic(found.name, 'layer="$layer"'), f"{{{{{found.scope}}}}}"),
            query(median, "median of all layers"),
        ],
        unit=_unit(found.name),
        log=_unit(found.name) == "sci",
        overrides=[dashed("median of all layers")],
        defaults=defaults,
    )


def _outside() -> list[Json]:
    return [
        row("Outside the layers: embedding, head"),
        curves(
            "Gradient norm",
            "Of what lies in no layer.",
            [query(statistic("grad_norm", 'layer=""'), "{{block}}")],
            unit="sci",
            log=True,
            size=(12, 8),
        ),
        curves(
            "Update ratio",
            "Of what lies in no layer: update / weights.",
            [query(statistic("update_ratio", 'layer=""'), "{{block}}")],
            unit="sci",
            log=True,
            size=(12, 8),
        ),
    ]


def _names() -> list[Json]:
    hidden = ("Time", "Value", "__name__", "job", "run", "rank", "instance")
    return [
        table(
            "Modules of the layer",
            "Full names behind the labels.",
            [query(series("layer_info", 'layer="$layer"'), instant=True, table=True)],
            size=(24, 8),
            transformations=[
                transformation("organize", excludeByName=dict.fromkeys(hidden, True), renameByName={}, indexByName={})
            ],
            overrides=[override("role", custom_width=200)],
        )
    ]
