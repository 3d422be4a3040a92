"""Any function of (row, step)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from stabmon.records import Alert


class Function:
    """Called in the training thread. An alert is only in the rows."""

    def __init__(self, call: Callable[[dict[str, float], int], object], name: str) -> None:
        self.name = name
        self._call = call

    def log(self, row: Mapping[str, float], step: int) -> None:
        self._call(dict(row), step)

    def tell(self, alert: Alert) -> None:
        """It takes numbers alone."""

    def flush(self) -> None:
        """Nothing is held back."""
