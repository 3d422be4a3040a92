"""A recorded run before the detectors."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import isnan, nan

from stabmon.detectors import Detector, default_detectors
from stabmon.pipeline import Pipeline, build
from stabmon.readers import Recording
from stabmon.records import Event, Snapshot
from stabmon.replays.needs import Seen, could_not_run, judges, levels, too_few
from stabmon.replays.verdict import Verdict, from_step
from stabmon.sinks import Sink


class Replay:
    """Feeds what a reader gives to the detectors, as live. `verdict()` is of what was read so far.

    `detectors`: instead of those that have what they need; fresh ones.
    """

    def __init__(
        self, recording: Recording, file: str, detectors: Iterable[Detector] | None = None, sinks: Sequence[Sink] = ()
    ) -> None:
        self.recording = recording
        self._file = file
        self._detectors = None if detectors is None else list(detectors)
        self._sinks = sinks
        self._seen = Seen()
        self._pipeline: Pipeline | None = None
        self._first: Snapshot | None = None
        self._last: Snapshot | None = None
        self._steps = 0
        self._losses = (nan, nan)

    def run(self) -> Verdict:
        """Reads to the end, which one that follows has only when it is stopped. ReadError: as the reader's."""
        try:
            for snapshot, events in self.recording.feeds():
                self.feed(snapshot, events)
        finally:
            self.end()
        return self.verdict()

    def feed(self, snapshot: Snapshot, events: Sequence[Event]) -> None:
        """For whoever goes through the recording himself."""
        pipeline = self._pipeline or self._begin(snapshot)
        self._see(snapshot)  # before its alerts are told: Ctrl-C may follow on them
        pipeline.feed(snapshot, events)

    def end(self) -> None:
        """Nothing more is fed."""
        state = self.recording.recorded.state if self.recording.recorded else "finished"
        (self._pipeline or build(self.recording.run, (), self._sinks)).close(state)

    def verdict(self, since: int = 0) -> Verdict:
        """`since`: leaves out what was over by then."""
        recording = self.recording
        missing = could_not_run(self._detectors or (), self._seen.statistics())
        hint = "" if recording.recorded else too_few(self._steps)
        if recording.recorded and self._pipeline:
            hint = levels(missing, recording.run)
        last = self._last.step if self._last else 0
        past = f"It ends at step {last:,}, before {since:,}: only what stood at its end is told."
        alerts = self._pipeline.alerts if self._pipeline else ()
        return Verdict(
            file=self._file,
            run=recording.run.name,
            format=recording.format,
            state=recording.recorded.state if recording.recorded else None,
            steps=self._steps,
            first_step=self._first.step if self._first else 0,
            last_step=last,
            first_loss=self._losses[0],
            last_loss=self._losses[1],
            alerts=from_step(alerts, since),
            could_run=tuple(each.name for each in self._detectors or () if each.name not in missing),
            could_not_run=missing,
            notes=tuple(note for note in (*recording.notes, hint, past if since > last else "") if note),
        )

    def _begin(self, first: Snapshot) -> Pipeline:
        self._first = first
        if self._detectors is None:
            self._detectors = default_detectors() if self.recording.recorded else judges(first.layout)
        self._pipeline = build(self.recording.run, self._detectors, self._sinks)
        return self._pipeline

    def _see(self, snapshot: Snapshot) -> None:
        self._steps += self._last is None or snapshot.step != self._last.step  # an evaluation may follow on its step
        self._last = snapshot
        self._seen.see(snapshot)
        loss = snapshot.scalar("loss")
        if not isnan(loss):
            self._losses = (loss if isnan(self._losses[0]) else self._losses[0], loss)
