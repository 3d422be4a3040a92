"""A detector whose alerts are known beforehand."""

from __future__ import annotations

import numpy as np

from stabmon.catalog import Array
from stabmon.records import Finding, Severity, Snapshot


class AlertsAt:
    """Says so once, at the given step."""

    name = "told"
    needs = ("loss",)

    def __init__(self, step: int, severity: Severity = "critical", since: int | None = None) -> None:
        self._step = step
        self._finding = Finding(severity, "is so", "", (), {}, since=step if since is None else since)

    def score(self, snapshot: Snapshot) -> Array:
        return np.full(1, 2.0 if snapshot.step >= self._step else 0.0, dtype=np.float32)

    def explain(self, site: int) -> Finding:
        return self._finding
