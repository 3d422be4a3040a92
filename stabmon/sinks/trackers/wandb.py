"""A Weights & Biases run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stabmon.records import Alert

_LEVELS = {"info": "INFO", "warning": "WARN", "critical": "ERROR"}
_STEP = "stabmon/step"


class Wandb:
    """Rows have an axis of their own, `stabmon/step`; an alert is a `run.alert`.

    A row is left open for what the loop itself logs next, and closed by the next row only where the loop logged
    nothing in between: rows that the loop numbers with `step=` are neither pushed on nor dropped.
    """

    name = "wandb"

    def __init__(self, run: Any) -> None:
        self._run = run
        self._open: int | None = None
        run.define_metric("stabmon/*", step_metric=_STEP)

    def log(self, row: Mapping[str, float], step: int) -> None:
        if self._open is not None and self._open == self._number():
            self._run.log({}, commit=True)
        self._run.log({**row, _STEP: step}, commit=False)
        self._open = self._number()

    def tell(self, alert: Alert) -> None:
        cleared = alert.state == "cleared"
        title = f"stabmon: {alert.detector} {'cleared' if cleared else alert.severity}"
        self._run.alert(title[:63], alert.message, level="INFO" if cleared else _LEVELS[alert.severity])

    def flush(self) -> None:
        """W&B writes an open row when the run finishes."""

    def _number(self) -> int:
        """Of the run's open row. The public `run.step` asks another process, and may wait for it."""
        return int(getattr(self._run, "_local_step", 0))
