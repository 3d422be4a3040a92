"""A small made-up run for tests: two blocks with a norm each, a final norm, and whole-model values."""

from collections.abc import Sequence

import numpy as np

from stabmon.catalog import Array
from stabmon.records import Alert, Event, Layout, Run, RunState, Severity, Site, Snapshot

RUN = Run("r1", started=1000.0, framework="torch", model="Tiny", version="0.1.0", architecture={"parameters": 7})
SITES = (
    Site("h.0", 0, "block"),
    Site("h.0.ln", 0, "ln"),
    Site("h.1", 1, "block"),
    Site("h.1.ln", 1, "ln"),
    Site("norm", None, "final"),
)
COLUMNS = (
    ("loss", ""),
    ("norm_input_msq", "h.0.ln"),
    ("total_grad_sq", ""),
    ("norm_input_msq", "h.1.ln"),
    ("norm_input_msq", "norm"),
    ("grad_sq", "h.0"),
    ("grad_sq", "h.1"),
)
LAYOUT = Layout(COLUMNS, SITES)
NAN = float("nan")


def snapshot(step: int, *values: float, layout: Layout = LAYOUT) -> Snapshot:
    """Values in slot order; those left out were not read. One second a step."""
    filled = np.full(len(layout.columns), np.nan, dtype=np.float32)
    filled[: len(values)] = values
    return Snapshot(step, 1000.0 + step, filled, layout)


def alert(step: int, severity: Severity = "warning", state: str = "raised", detector: str = "stall") -> Alert:
    return Alert(
        run="r1",
        detector=detector,
        state="cleared" if state == "cleared" else "raised",
        severity=severity,
        step=step,
        time=1000.0 + step,
        since=step - 2,
        site="h.1.ln",
        layer=1,
        score=1.5,
        action="is not learning. Restart",
        cause="100% certain",
        remedies=("cut the learning rate", "warm up"),
        ruled_out=("nothing to learn (gap 0.5)",),
        evidence={"loss": np.float32(3.5), "context_share": float("inf")},
    )


class Recorder:
    """A sink that remembers what it was given."""

    def __init__(self, name: str = "recorder") -> None:
        self.name = name
        self.steps: list[int] = []
        self.values: list[Array] = []
        self.alerts: list[Alert] = []
        self.events: list[Event] = []
        self.states: list[str] = []

    def emit(self, snapshot: Snapshot, alerts: Sequence[Alert], events: Sequence[Event]) -> None:
        self.steps.append(snapshot.step)
        self.values.append(snapshot.values)
        self.alerts += alerts
        self.events += events

    def close(self, state: RunState) -> None:
        self.states.append(state)


class AlertsAt:
    """A judge that raises an alert at given steps."""

    def __init__(self, *steps: int, name: str = "stall") -> None:
        self.name = name
        self.steps = steps

    def judge(self, snapshot: Snapshot) -> list[Alert]:
        return [alert(snapshot.step, detector=self.name)] if snapshot.step in self.steps else []
