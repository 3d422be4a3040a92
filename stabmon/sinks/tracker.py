"""Headline scalars and alerts into the experiment tracker that the run uses anyway, beside its own curves."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stabmon.catalog import STATISTICS
from stabmon.records import SEVERITIES, Alert, Event, RunState, Snapshot
from stabmon.sinks.trackers import Tracker

HEADLINE = (
    "context_share",
    "final_norm_input_msq",
    "update_ratio",
    "total_output_change_ratio",
    "output_change_kl",
    "trust_ratio",
    "unigram_loss",
    "bigram_loss",
)
"""What a tracker is sent. Of a per-layer statistic the largest value, as `<name>_max`; never each layer."""


class TrackerSink:
    """Writes a row at every `every`-th and every `probe_every`-th step, and at a step with an alert.

    `stabmon/alert/<detector>` is 1 (info), 2 (warning) or 3 (critical) while an alert is open, 0 once it has cleared.
    """

    def __init__(self, tracker: Tracker, every: int, probe_every: int) -> None:
        self.name = f"tracker_{tracker.name}"
        self._tracker = tracker
        self._clocks = (every, probe_every)
        self._alerts: dict[str, float] = {}

    def emit(self, snapshot: Snapshot, alerts: Sequence[Alert], events: Sequence[Event]) -> None:
        self._alerts.update({f"stabmon/alert/{alert.detector}": _level(alert) for alert in alerts})
        if alerts or any(snapshot.step % clock == 0 for clock in self._clocks):
            self._tracker.log({**headline(snapshot), **self._alerts}, snapshot.step)
        for alert in alerts:
            self._tracker.tell(alert)

    def close(self, state: RunState) -> None:
        """Lets the tracker write what it holds; it stays open, since it is not ours."""
        self._tracker.flush()


def headline(snapshot: Snapshot) -> dict[str, float]:
    """`stabmon/<name>` -> value, for those of `HEADLINE` that were read in this step."""
    row = {}
    for name in HEADLINE:
        values = snapshot[name]
        if (read := values[~np.isnan(values)]).size:
            suffix = "" if STATISTICS[name].scope == "model" else "_max"
            row[f"stabmon/{name}{suffix}"] = float(read.max())
    return row


def _level(alert: Alert) -> float:
    return 0.0 if alert.state == "cleared" else float(1 + SEVERITIES.index(alert.severity))
