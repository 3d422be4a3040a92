"""Alerts on their way to people: those of muted detectors reach nobody until that is over, and remedies name the
checkpoint that they mean. Nothing else hears of it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from stabmon.records import Alert, Event, RunState, Snapshot
from stabmon.runlog.marks import marks_of, muted, muted_at
from stabmon.runlog.progress import Progress, events_of, named
from stabmon.sinks import Sink
from stabmon.sinks.console import Console
from stabmon.sinks.notify import Notify
from stabmon.sinks.slack import Slack

_log = logging.getLogger("stabmon")
_LOOK_SECONDS = 5.0
"""So often is looked whether a mute was taken back, while an alert waits for its end."""
_PATIENCE_SECONDS = 0.05
"""The training does not wait longer for whoever holds the run log."""
_TELLS_PEOPLE = (Console, Slack, Notify)


class Hush:
    """Who is muted, read from the run log, where whoever serves it writes it; only asked when there is an alert, or
    one that waits for the end of a mute."""

    def __init__(self, run_log: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._run_log = run_log
        self._clock = clock
        self._asked = -1
        self._asked_at = float("-inf")
        self._muted: Mapping[str, int] = {}
        self.progress = Progress()
        """What the run told of its checkpoints."""

    def muted(self, step: int) -> Mapping[str, int]:
        """Detectors, and the last step of each one's mute; where it cannot be read, as it was."""
        if step != self._asked:
            self._asked, self._asked_at = step, self._clock()
            try:
                self._muted = muted(marks_of(self._run_log, _PATIENCE_SECONDS))
            except (OSError, ValueError) as error:
                _log.debug("stabmon: mutes cannot be read: %s", error)
        return self._muted

    def remember(self) -> None:
        """What was told of checkpoints before a resume."""
        with suppress(OSError, ValueError):
            self.progress.take(events_of(self._run_log))

    def left_over(self, alerts: Sequence[Alert], newest: int) -> dict[str, Alert]:
        """What a run that stopped after that step had withheld until then, by detector; `alerts`: all of it.

        Better told twice than never: it may not have heard of what was taken back at its last step or later.
        """
        try:
            marks = [mark for mark in marks_of(self._run_log) if mark.kind == "muted" or mark.step < newest]
        except (OSError, ValueError) as error:
            _log.debug("stabmon: mutes cannot be read: %s", error)
            return {}
        raised = {alert.detector: alert for alert in alerts}
        still = muted(marks)
        return {
            name: alert
            for name, alert in raised.items()
            if alert.state == "raised" and name in muted_at(marks, alert.step) and newest <= still.get(name, -1)
        }

    def lately(self, step: int) -> Mapping[str, int]:
        """As it was some seconds ago, or is now."""
        return self.muted(step if self._clock() - self._asked_at >= _LOOK_SECONDS else self._asked)


class Hushed:
    """A sink that tells people, without the alerts of muted detectors. One that still stands when the mute is over is
    told then, and soon after a mute that was taken back."""

    def __init__(self, sink: Sink, hush: Hush) -> None:
        self.name = sink.name
        self._sink = sink
        self._hush = hush
        self._withheld: dict[str, Alert] = {}

    def emit(self, snapshot: Snapshot, alerts: Sequence[Alert], events: Sequence[Event]) -> None:
        if events:
            self._hush.progress.take(events)
        if alerts or self._withheld:
            alerts = [*self._over(snapshot.step), *self._heard(snapshot.step, alerts)]
        self._sink.emit(snapshot, alerts, events)

    def recall(self, alerts: Sequence[Alert], newest: Snapshot | None) -> None:
        """All alerts of before a resume, and the last snapshot."""
        self._withheld = self._hush.left_over(alerts, newest.step) if newest else {}
        self._hush.remember()

    def close(self, state: RunState) -> None:
        self._sink.close(state)

    def _heard(self, step: int, alerts: Sequence[Alert]) -> list[Alert]:
        heard = []
        for alert in alerts:
            until = self._hush.muted(step).get(alert.detector, -1)
            withheld = self._withheld.pop(alert.detector, None)
            if alert.state == "raised" and step <= until:
                self._withheld[alert.detector] = alert
            elif alert.state == "raised" or not withheld:
                heard.append(alert)
        return heard

    def _over(self, step: int) -> list[Alert]:
        """Those whose mute has ended or was taken back; it may have been prolonged."""
        muted = self._hush.lately(step)
        if any(step > muted.get(name, -1) for name in self._withheld):
            muted = self._hush.muted(step)
        over = [name for name in self._withheld if step > muted.get(name, -1)]
        return [self._withheld.pop(name) for name in over]


class WayBack:
    """A sink that tells people, with remedies that name the checkpoint to go back to."""

    def __init__(self, sink: Sink, progress: Progress) -> None:
        self.name = sink.name
        self._sink = sink
        self._progress = progress

    def emit(self, snapshot: Snapshot, alerts: Sequence[Alert], events: Sequence[Event]) -> None:
        self._sink.emit(snapshot, [self._named(alert) for alert in alerts], events)

    def close(self, state: RunState) -> None:
        self._sink.close(state)

    def _named(self, alert: Alert) -> Alert:
        found = self._progress.checkpoint(alert.since)
        return replace(alert, remedies=tuple(named(remedy, found) for remedy in alert.remedies)) if found else alert


def hushed(sink: Sink, hush: Hush | None) -> Sink:
    """As it is, or, if it tells people, without what they muted and with what they can go back to."""
    return Hushed(WayBack(sink, hush.progress), hush) if hush and isinstance(sink, _TELLS_PEOPLE) else sink
