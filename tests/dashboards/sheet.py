"""A contact sheet: every panel of every dashboard with the data that Grafana would give it, as one PNG per dashboard;
and how many series each panel has.

`python -m tests.dashboards.sheet FOLDER [PROMETHEUS [RUN]]`; without a Prometheus it starts one, and trainings: then a
panel without a series is an error.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
from matplotlib import pyplot as plt
from rich.console import Console
from rich.table import Table

from tests.dashboards.drawing import draw
from tests.dashboards.given import choices, frames_of, series_of
from tests.dashboards.live import Prometheus, chosen, scraped_trainings
from tests.dashboards.reading import UIDS, load

_UNIT_INCHES = (0.75, 0.33)
"""Of Grafana's grid: 24 units are a page's width."""
_LOOK_BACK_SECONDS = 300.0
"""Into a Prometheus of the user's."""


def sheet(prometheus: Prometheus, uid: str, folder: Path, values: dict[str, str]) -> None:
    now = time.time()
    panels = load(uid)["panels"]
    height = max(p["gridPos"]["y"] + p["gridPos"]["h"] for p in panels)
    figure = plt.figure(figsize=(24 * _UNIT_INCHES[0], height * _UNIT_INCHES[1]))
    for panel in panels:
        at = panel["gridPos"]
        left, top = at["x"] / 24 + 0.035, 1 - (at["y"] + at["h"] - 0.9) / height
        box = (left, top, at["w"] / 24 - 0.045, (at["h"] - 2) / height)
        if panel["type"] == "row":
            figure.text(0.01, 1 - (at["y"] + 0.8) / height, panel["title"], weight="bold")
        else:
            draw(figure.add_axes(box), panel, frames_of(prometheus, panel, values, now))
    folder.mkdir(parents=True, exist_ok=True)
    figure.savefig(folder / f"{uid}.png", dpi=80)
    plt.close(figure)


def counted(prometheus: Prometheus) -> Table:
    """Dashboard, panel, series. ValueError: one has none."""
    table = Table("dashboard", "panel", "series", title="Series that each panel is given")
    empty = []
    for uid in UIDS:
        for panel, number in series_of(prometheus, uid, choices(prometheus, uid), time.time()).items():
            table.add_row(uid, panel, str(number))
            empty += [f"{uid}: {panel}"] * (number == 0)
    if empty:
        raise ValueError(f"no series: {', '.join(empty)}")
    return table


def main(folder: str, address: str | None = None, run: str | None = None) -> None:
    if address is None:
        with tempfile.TemporaryDirectory() as scratch, scraped_trainings(Path(scratch)) as prometheus:
            for uid in UIDS:
                sheet(prometheus, uid, Path(folder), choices(prometheus, uid)[-1])
            Console().print(counted(prometheus))
    else:
        prometheus = Prometheus(address, time.time() - _LOOK_BACK_SECONDS)
        for uid in UIDS:
            values = chosen(prometheus, uid)
            values |= {"run": run} if run and "|" not in values["run"] else {}
            sheet(prometheus, uid, Path(folder), values)


if __name__ == "__main__":
    main(*sys.argv[1:])
