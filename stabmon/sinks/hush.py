"""Detectors that somebody muted: their alerts reach no person until that is over. Nothing else hears of it."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path

from stabmon.records import Alert, Event, RunState, Snapshot
from stabmon.runlog.marks import marks_of, muted
from stabmon.sinks import Sink
from stabmon.sinks.console import Console
from stabmon.sinks.notify import Notify
from stabmon.sinks.slack import Slack

_log = logging.getLogger("stabmon")
_TELLS_PEOPLE = (Console, Slack, Notify)


class Hush:
    """Who is muted, read from the run log, where whoever serves it writes it; only asked when there is an alert."""

    def __init__(self, run_log: Path) -> None:
        self._run_log = run_log
        self._asked = -1
        self._muted: Mapping[str, int] = {}

    def muted(self, step: int) -> Mapping[str, int]:
        """Detectors, and the last step of each one's mute; nobody where it cannot be read."""
        if step != self._asked:
            self._asked = step
            try:
                self._muted = muted(marks_of(self._run_log))
            except (OSError, ValueError) as error:
                _log.debug("stabmon: mutes cannot be read: %s", error)
                self._muted = {}
        return self._muted


class Hushed:
    """A sink that tells people, without the alerts of muted detectors. One that still stands when the mute is over is
    told then."""

    def __init__(self, sink: Sink, hush: Hush) -> None:
        self.name = sink.name
        self._sink = sink
        self._hush = hush
        self._withheld: dict[str, tuple[int, Alert]] = {}

    def emit(self, snapshot: Snapshot, alerts: Sequence[Alert], events: Sequence[Event]) -> None:
        if alerts or self._withheld:
            alerts = [*self._over(snapshot.step), *self._heard(snapshot.step, alerts)]
        self._sink.emit(snapshot, alerts, events)

    def close(self, state: RunState) -> None:
        self._sink.close(state)

    def _heard(self, step: int, alerts: Sequence[Alert]) -> list[Alert]:
        heard = []
        for alert in alerts:
            until = self._hush.muted(step).get(alert.detector, -1)
            withheld = self._withheld.pop(alert.detector, None)
            if alert.state == "raised" and step <= until:
                self._withheld[alert.detector] = until, alert
            elif alert.state == "raised" or not withheld:
                heard.append(alert)
        return heard

    def _over(self, step: int) -> list[Alert]:
        """Those whose mute has ended; it may have been prolonged."""
        ended = [name for name, (until, _) in self._withheld.items() if step > until]
        found = []
        for name in ended:
            _, alert = self._withheld.pop(name)
            if (until := self._hush.muted(step).get(name, -1)) >= step:
                self._withheld[name] = until, alert
            else:
                found.append(alert)
        return found


def hushed(sink: Sink, hush: Hush | None) -> Sink:
    """As it is, or, if it tells people, without what they muted."""
    return Hushed(sink, hush) if hush and isinstance(sink, _TELLS_PEOPLE) else sink
