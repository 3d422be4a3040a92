"""Alerts to the log, as logger "stabmon". Nothing is configured: without any set-up Python itself prints warnings."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from stabmon.records import Alert, Event, RunState, Severity, Snapshot

_LEVELS: dict[Severity, int] = {"info": logging.INFO, "warning": logging.WARNING, "critical": logging.CRITICAL}
_logger = logging.getLogger("stabmon")


class Console:
    """A raised alert is its whole message, a cleared one a line; who saw the one sees the other, too."""

    name = "console"

    def emit(self, snapshot: Snapshot, alerts: Sequence[Alert], events: Sequence[Event]) -> None:
        for alert in alerts:
            if alert.state == "raised":
                _logger.log(_LEVELS[alert.severity], "%s", alert.message)
            else:
                level = min(_LEVELS[alert.severity], logging.WARNING)
                _logger.log(level, "step %d: %s", alert.step, alert.headline)

    def close(self, state: RunState) -> None:
        """Nothing to let go of."""
