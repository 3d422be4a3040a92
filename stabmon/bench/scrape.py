"""What a scrape of `/metrics` costs the training process."""

from __future__ import annotations

import time
from itertools import count

import numpy as np

from stabmon.catalog import PEAKS, STATISTICS
from stabmon.records import Layout, Run, Site, Snapshot
from stabmon.sinks.prometheus import Prometheus

SERIES = 2000
INTERVAL_SECONDS = 15


def seconds(renderings: int = 20) -> float:
    """CPU seconds that one rendering of at least 2,000 series takes, the values new each time: the median."""
    ticks = count()
    metrics = Prometheus(Run("bench", started=0.0), clock=lambda: float(next(ticks)))
    taken = []
    for step in range(1, renderings + 1):
        metrics.emit(snapshot(step), [], [])
        started = time.process_time()
        metrics.render()
        taken.append(time.process_time() - started)
    return float(np.median(taken))


def handover(steps: int = 640) -> float:
    """CPU seconds that training pays for each step, all layers read: mean over ten batches of steps."""
    metrics, taken = Prometheus(Run("bench", started=0.0)), [snapshot(step) for step in range(8)]
    started = time.process_time()
    for step in range(steps):
        metrics.emit(taken[step % len(taken)], (), ())
    return (time.process_time() - started) / steps


def snapshot(step: int) -> Snapshot:
    random = np.random.default_rng(step)
    values = random.lognormal(size=len(LAYOUT.columns)).astype(np.float32)
    return Snapshot(step, float(step), values, LAYOUT)


def _layout() -> Layout:
    """As many layers as make 2,000 series, each with two norms and a block."""
    rows = [row for row in STATISTICS.values() if row.formula is None and row.scope != "model"]
    shown = [row.scope for row in STATISTICS.values() if row.exported and row.scope != "model"]
    named = 3  # each module's full name is a series of its own
    peaks = [name for name in PEAKS if STATISTICS[name].scope == "block"]
    per_layer = named + 2 * shown.count("norm") + shown.count("block") + len(peaks)
    roles = {"norm": ("ln_1", "ln_2"), "block": ("block",)}
    sites, columns = [], []
    for layer in range(-(-SERIES // per_layer)):
        for scope, names in roles.items():
            for role in names:
                sites.append(Site(f"h.{layer}.{role}", layer, role))
                columns += [(row.name, sites[-1].name) for row in rows if row.scope == scope]
    return Layout(tuple(columns), tuple(sites))


LAYOUT = _layout()
