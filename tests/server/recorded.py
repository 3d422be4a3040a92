"""Run logs for tests: two blocks with a norm each, a step a second, numbers that can be told by heart."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from stabmon.records import Alert, Event, Layout, Run, RunState, Severity, Site, Snapshot
from stabmon.runlog import RunLogWriter

STARTED = 1_000_000.0
SITES = (
    Site("h.0", 0, "block"),
    Site("h.0.ln", 0, "ln"),
    Site("h.1", 1, "block"),
    Site("h.1.ln", 1, "ln"),
)
MODEL = ("loss", "bigram_loss", "unigram_loss", "uniform_loss", "context_share", "step_seconds", "monitor_seconds")
LAYOUT = Layout(
    (
        *((name, "") for name in MODEL),
        ("norm_input_msq", "h.0.ln"),
        ("norm_input_msq", "h.1.ln"),
        ("norm_gain", "h.0.ln"),
        ("norm_gain", "h.1.ln"),
        ("grad_sq", "h.0"),
        ("grad_sq", "h.1"),
        ("block_output_change_msq", "h.0"),
        ("block_output_change_msq", "h.1"),
        ("block_output_msq", "h.0"),
        ("block_output_msq", "h.1"),
    ),
    SITES,
)


def snapshot(
    step: int, loss: float = 2.0, layers: bool = True, start: float = STARTED, values: Mapping[str, float] | None = None
) -> Snapshot:
    """`values`: other values of statistics, the same at all their sites; the layers' own are step x layer number."""
    given = {"loss": loss, "bigram_loss": 2.4, "unigram_loss": 3.1, "uniform_loss": 5.5, "context_share": 0.5}
    given |= {"step_seconds": 1.0, "monitor_seconds": 0.01, **(values or {})}
    found = np.full(len(LAYOUT.columns), np.nan, dtype=np.float32)
    for slot, (statistic, site) in enumerate(LAYOUT.columns):
        if statistic in given:
            found[slot] = given[statistic]
        elif site and layers:
            found[slot] = step * (int(site[2]) + 1)
    return Snapshot(step, start + step, found, LAYOUT)


def alert(step: int, severity: Severity = "critical", state: str = "raised", **other: object) -> Alert:
    made = Alert(
        run="r1",
        detector="context_stall",
        state="cleared" if state == "cleared" else "raised",
        severity=severity,
        step=step,
        time=STARTED + step,
        since=step - 2,
        site="h.1.ln",
        layer=1,
        score=2.0,
        action="is not learning: every token gets the same answer. Restart with lr <= 3e-4",
        cause="The first updates were too large.",
        remedies=("Cut the learning rate", "Warm up"),
        evidence={"loss": 3.1, "context_share": float("nan"), "norm_input_msq": float("inf")},
    )
    return replace(made, **other)  # type: ignore[arg-type]


class Writing:
    """A run log that grows: `step()` adds rows that are on disk at once."""

    def __init__(self, path: Path, name: str = "r1", start: float = STARTED, resume_at: int | None = None) -> None:
        self.path, self.start = path, start
        self.run = Run(name, started=start, framework="torch", model="Tiny", version="0.1.0")
        self._writer = RunLogWriter(path, self.run, clock=_Hurry(), resume_at=resume_at)
        self.last = resume_at or 0

    def step(
        self,
        count: int = 1,
        loss: float = 2.0,
        alerts: Sequence[Alert] = (),
        events: Sequence[Event] = (),
        **values: float,
    ) -> None:
        for i in range(count):
            self.last += 1
            told = (alerts, events) if i == count - 1 else ((), ())
            self._writer.emit(snapshot(self.last, loss, start=self.start, values=values), *told)

    def judged_by(self, needs: Mapping[str, Sequence[str]]) -> None:
        self._writer.judged_by(needs)

    def scored(self, *scores: float) -> None:
        """Of the step that comes next."""
        self._writer.scored(np.array(scores, dtype=np.float32))

    def emit(self, made: Snapshot) -> None:
        self.last = made.step
        self._writer.emit(made, (), ())

    def close(self, state: RunState = "finished") -> None:
        self._writer.close(state)


class _Hurry:
    """A clock on which a second passes whenever it is looked at, so that every row is committed."""

    now = 0.0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now
