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
_LEGEND = """\
default            the default settings after the first 50 steps, averaged over a whole period
every_step         per-layer values in every step
every_step_output  and the output change
per_block          and the output change of each block by itself
Ratios are step times with stabmon / without. Host ms are those inside stabmon per step,
share is theirs of a step without; on the CPU that is the cost itself, and less noisy."""


def show(console: Console, size: Size, rows: Sequence[Row], step_seconds: float) -> None:
    """The table, its legend, the machine, and what a scrape costs."""
    table = Table("mode", "median", "p10", "p90", "target", "host ms", "share", "waits", box=None, pad_edge=False)
    for row in rows:
        ratios = (f"{ratio:.4f}" for ratio in (row.ratio_median, row.ratio_p10, row.ratio_p90))
        host = (f"{row.host_ms:.2f}", f"{row.host_ms / step_seconds / 10:.1f} %")
        table.add_row(row.mode, *ratios, str(_TARGETS.get(row.mode, "")), *host, f"{row.device_waits:g}")
    console.print(table)
    console.print(_LEGEND, highlight=False)
    clock = "CPU time of one thread" if size.device == "cpu" else "wall time"
    console.print(
        f"{rows[0].pairs} pairs of each kind of step; a step without stabmon takes {1e3 * step_seconds:.0f} ms "
        f"({clock}): {size.batch} x {size.length} tokens, {size.layers} layers, width {size.width}, {size.device}, "
        f"torch {torch.__version__}."
    )
    rendering = scrape.seconds()
    console.print(
        f"A scrape of {scrape.SERIES} series takes {1e3 * rendering:.1f} ms: every {scrape.INTERVAL_SECONDS} s, "
        f"{100 * rendering / scrape.INTERVAL_SECONDS:.3f} % of the time (target 0.1 %). "
        f"Handing a step over to it: {1e6 * scrape.handover():.0f} µs, if all layers are read in it."
    )
