"""An MLflow run."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from stabmon.records import Alert

_TAG_LENGTH = 500


class Mlflow:
    """Metrics, and each detector's latest alert as the tag `stabmon.alert.<detector>`; nothing waits for the server.

    It holds the run's id: the module's own functions would start a new run once this one has ended.
    """

    name = "mlflow"

    def __init__(self, client: Any, run_id: str) -> None:
        self._client = client
        self._run_id = run_id

    def log(self, row: Mapping[str, float], step: int) -> None:
        now = int(time.time() * 1000)
        for name, value in row.items():
            self._client.log_metric(self._run_id, name, value, now, step, synchronous=False)

    def tell(self, alert: Alert) -> None:
        text = alert.headline if alert.state == "raised" else f"{alert.run}: {alert.detector} cleared"
        key = f"stabmon.alert.{alert.detector}"
        self._client.set_tag(self._run_id, key, text[:_TAG_LENGTH], synchronous=False)

    def flush(self) -> None:
        """MLflow writes its queue when the process ends."""
