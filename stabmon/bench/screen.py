"""The figures for people."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from rich.console import Console
from rich.table import Table

from stabmon.bench import scrape
from stabmon.bench.figures import Row
from stabmon.bench.training import Size

_TARGETS = {"default": 1.005, "every_step": 1.03, "every_step_output": 1.08}
_READ = {
    "default": "what the defaults read",
    "every_step": "per-layer values",
    "every_step_output": "+ output change",
    "per_block": "+ that of each block",
}


def show(console: Console, size: Size, rows: Sequence[Row], step_seconds: float) -> None:
    """The table, the machine, and what a scrape costs."""
    table = Table("mode", "in each step", "with / without", "p10 – p90", "target", "host ms", "waits")
    for row in rows:
        target = _TARGETS.get(row.mode)
        table.add_row(
            row.mode,
            _READ[row.mode],
            f"{row.ratio_median:.4f}",
            f"{row.ratio_p10:.4f} – {row.ratio_p90:.4f}",
            f"{target}" if target else "",
            f"{row.host_ms:.2f} ({row.host_ms / step_seconds / 10:.1f} %)",
            f"{row.device_waits:g}",
        )
    for column in table.columns:
        column.no_wrap = True
    console.print(table)
    clock = "CPU time of one thread" if size.device == "cpu" else "wall time"
    console.print(
        f"{rows[0].pairs} pairs of each kind of step; a step without stabmon takes {1e3 * step_seconds:.0f} ms "
        f"({clock}), {size.batch} x {size.length} tokens, {size.layers} layers, width {size.width}, {size.device}, "
        f"torch {torch.__version__}."
    )
    rendering = scrape.seconds()
    console.print(
        f"A scrape of {scrape.SERIES} series takes {1e3 * rendering:.1f} ms: every {scrape.INTERVAL_SECONDS} s, "
        f"{100 * rendering / scrape.INTERVAL_SECONDS:.3f} % of the time (target 0.1 %)."
    )
