"""What is done about an alert: in the training thread, and with several ranks after the same step on all of them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from torch import distributed

from stabmon.records import Alert

OnAlert = Callable[[Alert], object]

_log = logging.getLogger("stabmon")


def on_critical(act: OnAlert) -> OnAlert:
    """Leaves out what is no call to act: warnings, and the end of an incident."""

    def acting(alert: Alert) -> None:
        if alert.severity == "critical" and alert.state == "raised":
            act(alert)

    return acting


class Reaction:
    """Calls `act` with every alert, after the step in which it came.

    Rank 0 alone has alerts. With several ranks it tells the others every `every` steps, and all act after that step;
    each must therefore call `after_step` equally often. It knows nothing of the session, whose failure on rank 0 must
    not leave the others waiting.
    """

    def __init__(self, act: OnAlert, every: int, step: int, known: int, several: bool) -> None:
        """`step`: optimizer steps completed so far; `known`: alerts of before a resume; `several`: whether other ranks
        are to be told."""
        self._act = act
        self._step = step
        self._known = known
        self._every = every if several else 1
        self._agree: Callable[[Sequence[Alert]], Sequence[Alert]] = _from_rank_0 if several else list

    def after_step(self, alerts: Sequence[Alert]) -> None:
        """`alerts`: all of the run so far; none on other ranks than 0."""
        self._step += 1
        if self._step % self._every:
            return
        fresh, self._known = alerts[self._known :], len(alerts)
        try:
            agreed = self._agree(fresh)
        except Exception:  # nothing of ours may end a training
            _log.exception("stabmon: ranks do not answer at step %d; on_alert is dropped", self._step)
            agreed, self._agree = [], lambda _: []
        for alert in agreed:
            self._do(alert)

    def _do(self, alert: Alert) -> None:
        try:
            self._act(alert)
        except Exception:
            _log.exception("stabmon: on_alert failed at step %d and is dropped; training goes on", self._step)
            self._act = nothing  # but this rank still takes part


def nothing(alert: Alert) -> None:
    """What a rank does that only listens: the others wait for it."""


def _from_rank_0(alerts: Sequence[Alert]) -> list[Alert]:
    """Its alerts, on every rank: some bytes, or a few thousand when there is one."""
    told = [list(alerts)]
    distributed.broadcast_object_list(told, src=0)
    return told[0]
