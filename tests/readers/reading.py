"""Reads bytes as a user's file would be read."""

from __future__ import annotations

import io
from dataclasses import dataclass
from math import isnan

from stabmon.readers import Recording, opened
from stabmon.records import Event, Snapshot


@dataclass(frozen=True)
class Read:
    recording: Recording
    fed: list[tuple[Snapshot, list[Event]]]

    def of(self, statistic: str) -> list[tuple[int, float]]:
        """(step, value) wherever it was read."""
        found = [(snapshot.step, snapshot.scalar(statistic)) for snapshot, _ in self.fed]
        return [(step, value) for step, value in found if not isnan(value)]

    @property
    def losses(self) -> list[tuple[int, float]]:
        return self.of("loss")

    @property
    def notes(self) -> str:
        return "\n".join(self.recording.notes)


def read(text: str | bytes, **options: str) -> Read:
    """ReadError: as `opened` and `feeds` raise it."""
    recording = opened(io.BytesIO(text.encode() if isinstance(text, str) else text), **options)
    return Read(recording, list(recording.feeds()))
