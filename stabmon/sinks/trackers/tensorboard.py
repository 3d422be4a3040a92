"""A TensorBoard SummaryWriter, of torch or of tensorboardX."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stabmon.records import Alert


class TensorBoard:
    """Scalars, and alerts as text under `stabmon/alerts`."""

    name = "tensorboard"

    def __init__(self, writer: Any) -> None:
        self._writer = writer

    def log(self, row: Mapping[str, float], step: int) -> None:
        for name, value in row.items():
            self._writer.add_scalar(name, value, step)

    def tell(self, alert: Alert) -> None:
        text = alert.message if alert.state == "raised" else f"{alert.run}: {alert.detector} cleared"
        self._writer.add_text("stabmon/alerts", text.replace("\n", "  \n"), alert.step)  # two spaces: a new line
        self._writer.flush()

    def flush(self) -> None:
        self._writer.flush()
