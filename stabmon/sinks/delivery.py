"""Carries alerts out of the training process: a bounded queue, one worker thread, a spool on disk."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Literal, Protocol, runtime_checkable

from stabmon.records import Alert, Severity
from stabmon.sinks.ledger import Ledger
from stabmon.sinks.restraint import Restraint
from stabmon.sinks.spool import Slip, Spool

_log = logging.getLogger("stabmon")
_MOST_WAITING = 64
_FIRST_REST, _LONGEST_REST = 1.0, 60.0
"""Seconds after a first and after many failed attempts."""


class NotNow(Exception):
    """Delivery failed in a way that passes; its text is logged, so it holds no secret."""


class Refused(Exception):
    """Delivery failed in a way that does not pass; its text is logged, so it holds no secret."""


Why = Literal["new", "held", "left_over"]
"""Why they go out now: they just happened, were held back for a digest, or an earlier process left them over."""
Send = Callable[[Sequence[Alert], Why], None]
"""Delivers alerts as one message. Raises NotNow to be called again; Refused, or anything, if that is of no use."""


@dataclass(frozen=True, slots=True)
class _Parcel:
    """What goes out as one message."""

    alerts: tuple[Alert, ...]
    slips: tuple[Slip, ...]
    why: Why

    @property
    def urgent(self) -> bool:
        return any(alert.severity == "critical" for alert in self.alerts)


class Delivery:
    """`take` returns at once. Counts alerts in `sent`, `failed` (left in the spool), `dropped` (too many waiting) and
    `held` (back for a digest, and in another count once that is under way).

    `folder`: where an alert lies until it is delivered; what other processes left there is taken along. None: no
    spool, and what is under way when the process dies is lost. The thread starts with the first alert. `ledger`: told
    what becomes of each.
    """

    def __init__(
        self, name: str, send: Send, folder: Path | None, least: Severity = "warning", ledger: Ledger | None = None
    ) -> None:
        self.name = name
        self.sent = self.failed = self.dropped = self.held = 0
        self._send = send
        self._spool = Spool(folder) if folder else None
        self._restraint = Restraint(least)
        self._ledger = ledger or Ledger(None)
        self._tried: _Parcel | None = None
        """What was tried last, in vain."""
        self._changed = threading.Condition()
        self._queue: list[_Parcel] = []
        self._held: list[tuple[float, _Parcel]] = []
        self._thread: threading.Thread | None = None
        self._busy = self._hurry = self._closing = self._over = False
        self._kept = True
        """Whether every alert could be kept on disk."""
        self._complaints: set[str] = set()
        if self._spool and (found := _parcels(self._spool.leftovers())):
            self._queue += found
            self._start()

    def take(self, alerts: Sequence[Alert]) -> None:
        """On disk when this returns, and soon delivered: at once, later in a digest, or never if it is not worth it."""
        for alert in alerts:
            when = self._restraint.when(alert)
            if when is None:
                continue
            held = when > alert.time
            self.held += held
            if held:
                self._ledger.enter((alert,), self.name, "held")
            parcel = _Parcel((alert,), self._keep(alert), "held" if held else "new")
            with self._changed:
                if held:
                    self._held = [*self._held, (when, parcel)]
                else:
                    self._queue.append(parcel)
                    self._hurry = self._hurry or parcel.urgent
                self._trim()
                self._changed.notify_all()
            self._start()

    def outcomes(self) -> Mapping[str, int]:
        """The counts by name."""
        return {"sent": self.sent, "failed": self.failed, "dropped": self.dropped, "held": self.held}

    def close(self, patience: float = 5.0) -> None:
        """Sends what waits, digests too, for at most `patience` seconds, and leaves the rest to the next process."""
        with self._changed:
            self._closing = self._hurry = True
            self._changed.notify_all()
            if self._thread:
                self._changed.wait_for(lambda: not (self._queue or self._held or self._busy), patience)
            self._over = True
            self._changed.notify_all()
            left = [*self._queue, *(parcel for _, parcel in self._held)]
            self._queue, self._held = [], []
            unsent = len(left) + self._busy
        for parcel in left:
            self._set_aside(parcel)
        if unsent:
            _log.warning("stabmon: %s: %d messages could not be sent before the end%s", self.name, unsent, self._hope)
        self._ledger.wait(patience)
        if self._spool:
            self._spool.tidy()

    @property
    def _hope(self) -> str:
        if self._spool is None:
            return ""
        which = "them" if self._kept else "those that are kept on disk"
        return f"; the next run in the same folder sends {which} ({self._spool.folder})"

    def _keep(self, alert: Alert) -> tuple[Slip, ...]:
        try:
            return (self._spool.put(alert),) if self._spool else ()
        except Exception as error:  # a full disk must not keep an alert from being sent
            self._kept = False
            self._complain(f"alerts are not kept on disk ({type(error).__name__}); if the process dies, some are lost")
            return ()

    def _start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name=f"stabmon-{self.name}", daemon=True)
            try:
                self._thread.start()
            except RuntimeError:  # the interpreter is shutting down: the spool has it
                self._thread = None

    def _work(self) -> None:
        rest = _FIRST_REST
        while parcel := self._next():
            passed = self._deliver(parcel)
            with self._changed:
                self._busy = False
                if not passed and self._over:
                    self._set_aside(parcel)
                elif not passed:
                    self._queue.insert(0, parcel)
                    self._changed.wait_for(lambda: self._hurry or self._over, rest)
                rest = _FIRST_REST if passed else min(2 * rest, _LONGEST_REST)
                self._changed.notify_all()

    def _next(self) -> _Parcel | None:
        """Waits for the next parcel: an urgent one if there is any. None: it is over."""
        with self._changed:
            while not self._over:
                self._collect_digest()
                if self._queue:
                    urgent = (i for i, parcel in enumerate(self._queue) if parcel.urgent)
                    self._busy, self._hurry = True, False
                    return self._queue.pop(next(urgent, 0))
                self._changed.notify_all()
                self._changed.wait(_LONGEST_REST if self._held else None)
        return None

    def _collect_digest(self) -> None:
        now = time.time()
        due = [parcel for when, parcel in self._held if self._closing or when <= now]
        if due:
            self._held = [(when, parcel) for when, parcel in self._held if not (self._closing or when <= now)]
            self._queue.append(_together(due))

    def _deliver(self, parcel: _Parcel) -> bool:
        """Whether it is done with, well or not; False: to be tried again."""
        try:
            self._send(parcel.alerts, parcel.why)
        except NotNow as error:
            self._complain(f"{error}; it tries again")
            if parcel is not self._tried:
                self._ledger.enter(parcel.alerts, self.name, "waiting", str(error))
            self._tried = parcel
            for slip in parcel.slips:
                slip.secure()
            return False
        except Exception as error:  # whatever a target raises, this thread must live on
            reason = str(error) if isinstance(error, Refused) else f"raised {type(error).__name__}"
            self._complain(f"{reason}{self._hope}")
            self.failed += len(parcel.alerts)
            self._ledger.enter(parcel.alerts, self.name, "failed", reason)
            self._set_aside(parcel)
            return True
        self.sent += len(parcel.alerts)
        self._ledger.enter(parcel.alerts, self.name, "sent")
        for slip in parcel.slips:
            slip.done()
        return True

    def _set_aside(self, parcel: _Parcel) -> None:
        for slip in parcel.slips:
            slip.leave()

    def _trim(self) -> None:
        while len(self._queue) + len(self._held) > _MOST_WAITING:
            if self._held:
                parcel = self._held.pop(0)[1]
            else:
                calm = (i for i, parcel in enumerate(self._queue) if not parcel.urgent)
                parcel = self._queue.pop(next(calm, 0))
            self.dropped += len(parcel.alerts)
            self._ledger.enter(parcel.alerts, self.name, "dropped")
            for slip in parcel.slips:
                slip.done()

    def _complain(self, text: str) -> None:
        if text not in self._complaints:
            self._complaints.add(text)
            _log.warning("stabmon: %s: %s", self.name, text)


@runtime_checkable
class Delivering(Protocol):
    """A sink whose messages are counted."""

    delivery: Delivery


def _together(parcels: Sequence[_Parcel]) -> _Parcel:
    return _Parcel(
        tuple(alert for parcel in parcels for alert in parcel.alerts),
        tuple(slip for parcel in parcels for slip in parcel.slips),
        parcels[0].why,
    )


def _parcels(leftovers: Sequence[tuple[Alert, Slip]]) -> list[_Parcel]:
    """Each critical one for itself, a run's others together."""
    found = []
    ordered = sorted(leftovers, key=lambda left: (left[0].severity != "critical", left[0].run))
    for (calm, _), group in groupby(ordered, key=lambda left: (left[0].severity != "critical", left[0].run)):
        parcels = [_Parcel((alert,), (slip,), "left_over") for alert, slip in group]
        found += [_together(parcels)] if calm else parcels
    return found
