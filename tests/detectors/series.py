"""Recorded runs, made up: statistics by name -> snapshots, and what an alarm says of them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from stabmon.catalog import STATISTICS
from stabmon.detectors import Detector
from stabmon.detectors.alarm import Alarm
from stabmon.detectors.arrays import Floats
from stabmon.records import Alert, Layout, Site, Snapshot

Series = Callable[..., list[Snapshot]]


def sites_for(statistic: str, count: int) -> list[Site]:
    """The whole model; or one norm, or one block, in each of `count` layers."""
    scope = STATISTICS[statistic].scope
    if scope == "model":
        return [Site("")]
    name = "layers.{}.norm" if scope == "norm" else "layers.{}"
    return [Site(name.format(i), layer=i, role=scope) for i in range(count)]


def layout_of(values: Mapping[str, Floats]) -> Layout:
    columns, sites = [], {}
    for statistic, array in values.items():
        for site in sites_for(statistic, array.shape[1]):
            columns.append((statistic, site.name))
            sites[site.name] = site
    return Layout(tuple(columns), tuple(sites.values()))


def make_series(statistics: Mapping[str, ArrayLike], first: int = 1, every: int = 1) -> list[Snapshot]:
    """Snapshots of steps first, first + every, …; statistics by name, each [steps] or [steps, layers]."""
    values = {name: np.asarray(array, float) for name, array in statistics.items()}
    values = {name: array[:, None] if array.ndim == 1 else array for name, array in values.items()}
    layout = layout_of(values)
    rows = np.concatenate(list(values.values()), axis=1).astype(np.float32)
    return [Snapshot(first + every * i, 1e9 + i, row, layout) for i, row in enumerate(rows)]


def placed(snapshots: Sequence[Snapshot], placement: str) -> list[Snapshot]:
    """The same, with that placement at each norm."""
    old = snapshots[0].layout
    sites = tuple(replace(site, placement=placement) if site.role == "norm" else site for site in old.sites)
    layout = Layout(old.columns, sites)
    return [replace(snapshot, layout=layout) for snapshot in snapshots]


def steps(count: int) -> Floats:
    """From 1 on."""
    return np.arange(1.0, count + 1)


@np.errstate(all="ignore")  # as in the pipeline
def alerts_of(detector: Detector, snapshots: Sequence[Snapshot], **alarm: int) -> list[Alert]:
    judge = Alarm(detector, "run", **alarm).judge
    return [alert for snapshot in snapshots for alert in judge(snapshot)]


def told(alerts: Sequence[Alert]) -> list[tuple[int, str]]:
    """(step, severity), or (step, "cleared")."""
    return [(a.step, a.severity if a.state == "raised" else "cleared") for a in alerts]
