"""What the JSON API answers. A number that was not read is null, one that is not finite "Infinity" or "-Infinity"."""

from __future__ import annotations

from collections.abc import Mapping
from math import isnan
from typing import Annotated

import numpy as np
from pydantic import BaseModel, BeforeValidator, ConfigDict

from stabmon.catalog import Array
from stabmon.records import RunState, Severity
from stabmon.server.verdict import Level

Number = Annotated[float | None, BeforeValidator(lambda value: None if value is None or isnan(value) else value)]
"""NaN is not read."""
_DIGITS = 6
"""As many as a float32 has."""


class Answer(BaseModel):
    """Base of every answer."""

    model_config = ConfigDict(ser_json_inf_nan="strings", from_attributes=True, frozen=True)


class Words(Answer):
    """The verdict."""

    level: Level
    title: str
    text: str


class RunRow(Answer):
    """A line of the list of runs. With `error` set the run log could not be read, and says why."""

    id: str
    name: str
    error: str | None = None
    state: RunState | None = None
    step: int | None = None
    loss: Number = None
    started: float | None = None
    """Unix seconds."""
    time: float | None = None
    """Unix seconds of the newest step."""
    open_alerts: int = 0
    verdict: Words | None = None


class Runs(Answer):
    """`live`: served from the training process itself, which watches one run. `runs`: newest first."""

    live: bool
    now: float
    runs: list[RunRow]


class Cost(Answer):
    """What stabmon takes on the host: mean seconds a step, newest steps and whole run."""

    recent_seconds: Number
    recent_ratio: Number
    """Of the step's wall time."""
    total_seconds: float
    total_ratio: Number


class Taken(Answer):
    """A statistic of this run."""

    name: str
    unit: str
    help: str
    sites: int
    """At how many sites it is taken."""
    per_layer: bool


class Run(Answer):
    """One run as it stands."""

    id: str
    name: str
    state: RunState
    framework: str
    model: str
    world_size: int
    version: str
    started: float
    now: float
    version_of_data: int
    """Changes with everything new."""
    first_step: int
    step: int
    time: float
    silent_after: float
    """Seconds without a step after which the numbers are no longer news."""
    verdict: Words
    values: dict[str, Number]
    """Newest reading of every whole-model statistic."""
    cost: Cost
    statistics: list[Taken]


class Place(Answer):
    """A site; layer is null outside the blocks."""

    name: str
    layer: int | None
    role: str


class Line(Answer):
    """A statistic at one site, aligned with the steps: lowest and highest reading at each point."""

    site: Place
    low: list[float | None]
    high: list[float | None]


class News(Answer):
    """An event of the stream: there is something new, up to that step."""

    version: int
    step: int
    state: RunState
    alerts: int


class Series(Answer):
    """A point covers the steps after the one before it, up to its own."""

    statistic: str
    unit: str
    help: str
    steps: list[int]
    lines: list[Line]


class Layers(Answer):
    """A matrix over equally wide ranges of steps.

    `values[i][j]`: highest reading of site i in the `width` steps from `steps[j]` on.
    """

    statistic: str
    unit: str
    help: str
    width: int
    steps: list[int]
    sites: list[Place]
    values: list[list[float | None]]


class AlertRow(Answer):
    """An alert, as it was raised or cleared."""

    detector: str
    state: str
    severity: Severity
    step: int
    time: float
    since: int
    site: str
    layer: int | None
    score: Number
    headline: str
    cause: str
    remedies: list[str]
    ruled_out: list[str]
    evidence: Mapping[str, Number]
    open: bool = False
    """Whether it is the one that stands."""


class Alerts(Answer):
    """Newest first."""

    alerts: list[AlertRow]


class EventRow(Answer):
    """Something known that happened to the run."""

    step: int
    time: float
    kind: str
    detail: Mapping[str, float | str]


class Events(Answer):
    """Newest first, the last thousand."""

    events: list[EventRow]


def numbers(values: Array) -> list[float | None]:
    """To six digits; NaN becomes null."""
    exact = values.astype(np.float64)
    with np.errstate(all="ignore"):
        scale = 10.0 ** (_DIGITS - 1 - np.floor(np.log10(np.abs(exact))))
        rounded = np.round(exact * scale) / scale
    plain = np.where(np.isfinite(rounded), rounded, exact).astype(object)
    plain[np.isnan(exact)] = None
    found: list[float | None] = plain.tolist()
    return found
