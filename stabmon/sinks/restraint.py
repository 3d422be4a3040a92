"""Which alerts reach a person at once, which wait for a digest, and which are not worth a message."""

from __future__ import annotations

from stabmon.records import SEVERITIES, Alert, Severity

DAY = 86400.0
_QUIET: dict[Severity, float] = {"info": DAY, "warning": DAY, "critical": 600.0}
"""Seconds in which a detector's next alert of that severity waits: a page for news, not for a flapping value."""


class Restraint:
    """A detector's first warning is told at once, its later ones of a day together; a critical one waits for none.

    `least`: what is less severe is not told. An end is told to who was told of the beginning, and no sooner.
    """

    def __init__(self, least: Severity = "warning") -> None:
        if least not in SEVERITIES:
            raise ValueError(f"least={least!r}: must be one of {', '.join(SEVERITIES)}")
        self._least = SEVERITIES.index(least)
        self._quiet_until: dict[tuple[str, Severity], float] = {}
        self._told_at: dict[str, float] = {}

    def when(self, alert: Alert) -> float | None:
        """Unix second at which to tell it, `alert.time` at the earliest, which is at once; None: never."""
        if alert.state == "cleared":
            told = self._told_at.pop(alert.detector, None)
            return None if told is None else _not_before(told, alert.time, DAY)
        if SEVERITIES.index(alert.severity) < self._least:
            return None
        key, quiet = (alert.detector, alert.severity), _QUIET[alert.severity]
        when = _not_before(self._quiet_until.get(key, alert.time), alert.time, quiet)
        if when == alert.time:
            self._quiet_until[key] = when + quiet
        self._told_at[alert.detector] = min(when, self._told_at.get(alert.detector, when))
        return when


def _not_before(until: float, now: float, longest: float) -> float:
    """Nothing waits for longer than that, unless the clock was set back: then it waits no more."""
    return until if now < until <= now + longest else now
