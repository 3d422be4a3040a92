"""Runs that an exception ended. The Trainer tells no callback of it, so the next training of the process looks."""

from __future__ import annotations

import sys
import threading
import weakref
from dataclasses import dataclass
from typing import Any

from stabmon.huggingface.callers import trainers
from stabmon.monitor import Monitor
from stabmon.records import RunState


@dataclass(frozen=True, slots=True)
class _Begun:
    monitor: Monitor
    thread: int
    trainer: weakref.ref[Any]


class Endings:
    """Of all callbacks in this process. What is left over holds a model, hooks and a port."""

    def __init__(self) -> None:
        self._begun: list[_Begun] = []
        self._changing = threading.Lock()

    def begun(self, monitor: Monitor) -> None:
        """Training begins in this thread."""
        begun = [_Begun(monitor, threading.get_ident(), weakref.ref(trainer)) for trainer, _ in trainers()]
        with self._changing:
            self._begun += begun[:1]

    def ended(self, monitor: Monitor) -> None:
        """Its callback was told so."""
        with self._changing:
            self._begun = [run for run in self._begun if run.monitor is not monitor]

    def close(self) -> None:
        """Those whose training is over, before another one begins in this thread."""
        others, training = sys._current_frames().keys() - {threading.get_ident()}, [found for found, _ in trainers()]
        with self._changing:
            over = [run for run in self._begun if run.thread not in others and run.trainer() not in training]
        for run in over:
            self.ended(run.monitor)
            run.monitor.close(how(), linger=False)


def how() -> RunState:
    """Interactive Python tells of the newest exception that nobody caught."""
    error = getattr(sys, "last_exc", getattr(sys, "last_value", None))
    return "stopped" if isinstance(error, KeyboardInterrupt) else "failed"
