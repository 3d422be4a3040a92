"""Trackers, one file each. A tracker is known by its methods, so that none has to be installed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

from stabmon.records import Alert


@runtime_checkable
class Tracker(Protocol):
    """Where rows of scalars go. It hands them to its library, which queues them itself."""

    @property
    def name(self) -> str: ...

    def log(self, row: Mapping[str, float], step: int) -> None:
        """The values of one training step, by name."""
        ...

    def tell(self, alert: Alert) -> None:
        """An alert in words, where the tracker has a place for them."""
        ...

    def flush(self) -> None:
        """Write what is held back."""
        ...
