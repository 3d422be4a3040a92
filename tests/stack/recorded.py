"""Runs that are written as a training writes them, and served by `stabmon serve`: their faults need no training."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Event, Thread

import numpy as np

from stabmon.detectors.alarm import Alarm
from stabmon.detectors.residual_blowup import ResidualBlowup
from stabmon.records import Alert, Run, Snapshot
from stabmon.runlog import RunLogWriter
from tests.detectors.series import make_series

STEPS_A_SECOND = 20
SPIKE_STEP = 100
CALM_STEPS = 40
"""Before `go`: counters are scraped at 0, or what they count later is no increase."""
_COUNT = 4000


class BlowUp:
    """Three layers, one of which grows with the fourth power of the step until step 110, and then no more; judged by
    the detector itself.
    """

    def __init__(self, name: str) -> None:
        t = np.minimum(np.arange(1, _COUNT), 110)
        inputs = 1e-3 * np.stack([t**1.0, t**4.0, t**2.0], axis=1)
        self.rows = make_series({"norm_input_msq": inputs, "loss": np.full(len(t), 3.0)})
        self.judge = Alarm(ResidualBlowup(), name).judge


class OneStep:
    """A calm run, and an alert that is over with the next step."""

    def __init__(self, name: str) -> None:
        self.rows = make_series({"norm_input_msq": np.ones((_COUNT, 3)), "loss": np.full(_COUNT, 3.0)})
        self._name = name

    def judge(self, row: Snapshot) -> list[Alert]:
        if row.step not in (SPIKE_STEP, SPIKE_STEP + 1):
            return []
        state = "raised" if row.step == SPIKE_STEP else "cleared"
        since, where = SPIKE_STEP, ("", None)
        return [Alert(self._name, "spike", state, "warning", row.step, row.time, since, *where, 1.0, "jumped")]


@contextmanager
def written(folder: Path, name: str, source: BlowUp | OneStep, go: Event) -> Iterator[Sequence[Alert]]:
    """Its run log grows until the end, beyond the calm steps once `go` is set; the alerts so far."""
    ended, alerts = Event(), list[Alert]()

    def write() -> None:
        log = RunLogWriter(folder / f"{name}.stabmon", Run(name, started=time.time()))
        for row in source.rows:
            if row.step > CALM_STEPS:
                go.wait()
            now = replace(row, time=time.time())
            told = source.judge(now)
            alerts.extend(told)
            log.emit(now, told, [])
            # What an alert raises and the next step clears is between two scrapes.
            if not any(alert.state == "raised" for alert in told) and ended.wait(1 / STEPS_A_SECOND):
                break
        log.close("finished")

    writer = Thread(target=write, daemon=True)
    writer.start()
    try:
        yield alerts
    finally:
        ended.set()
        go.set()
        writer.join(10)
