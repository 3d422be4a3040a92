"""Sinks carry snapshots, alerts and events out. One file per destination; a sink with I/O owns its queue and thread."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from stabmon.records import Alert, Event, RunState, Snapshot


class Sink(Protocol):
    """Where a run's numbers go. `emit` returns at once."""

    name: str

    def emit(self, snapshot: Snapshot, alerts: Sequence[Alert], events: Sequence[Event]) -> None:
        """One finished step, the alerts that it raised or cleared, and the events since the last one."""
        ...

    def close(self, state: RunState) -> None:
        """The run is over: flush and let go."""
        ...
