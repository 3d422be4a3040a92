"""What the JSON API answers. A number that was not read is null, one that is not finite "Infinity" or "-Infinity"."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from stabmon.records import MarkKind, RunState, Severity
from stabmon.runlog.told import Outcome
from stabmon.server.drawn import Band as Band
from stabmon.server.drawn import Curves as Curves
from stabmon.server.drawn import Layers as Layers
from stabmon.server.drawn import Line as Line
from stabmon.server.drawn import Place as Place
from stabmon.server.drawn import Profile as Profile
from stabmon.server.drawn import Series as Series
from stabmon.server.numbers import Answer as Answer
from stabmon.server.numbers import Number as Number
from stabmon.server.verdict import Level


class Words(Answer):
    """The verdict."""

    level: Level
    title: str
    """What a person has to know, in one line."""
    text: str
    basis: str
    """What it is based on."""
    unseen: list[str]
    """What could not be looked at, a phrase each."""


class Checkpoint(Answer):
    """Written after that step, and not deleted as far as is known."""

    step: int
    time: float
    name: str
    """The last part of its path; "" where it is not known."""


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
    age: float | None = None
    """Seconds since then, also where clocks differ or jump."""
    silent: bool = False
    """Whether it runs and has said nothing for too long."""
    open_alerts: int = 0
    severity: Severity | None = None
    """Of the worst open alert."""
    alerts: int = 0
    """Raised so far."""
    model: str = ""
    framework: str = ""
    planned: int | None = None
    """Steps that it is to have in all."""
    left: str = ""
    """Until then, in words; "" where it is not known."""
    spark: list[float | None] = []
    """Losses from the start to now, evenly spaced."""
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


class Unseen(Answer):
    """Something that could not be looked at, and what would help."""

    step: int
    what: str
    why: str
    todo: str


class Run(Answer):
    """One run as it stands."""

    id: str
    name: str
    state: RunState | None
    """Null where nobody knows: another tool's file does not say."""
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
    rows: int
    """Steps that were recorded."""
    planned: int | None
    """Steps that the run is to have in all."""
    seconds_left: float | None
    """Until then, as things go; no more than a guess."""
    left: str
    """The same in words; "" where it is not known."""
    checkpoint: Checkpoint | None
    """The last one, or that of before the worst that is wrong now."""
    since_time: float | None
    """Unix seconds at which began what the verdict tells of."""
    age: float | None
    """Seconds since the newest step, also where clocks differ or jump."""
    silent: bool
    silent_after: float
    """Seconds without a step after which the numbers are no longer news."""
    marks_version: int
    """Changes with every mark on an alert."""
    verdict: Words
    unseen: list[Unseen]
    values: dict[str, Number]
    """Newest reading of every whole-model statistic."""
    loss_mean: Number
    """Of the newest steps."""
    baselines: dict[str, Number]
    """Means of the newest steps: "bigram", "unigram", …"""
    settings: dict[str, str]
    """What Monitor was given beside its defaults."""
    environment: Mapping[str, str | float]
    """What it runs on: versions, device, sizes."""
    labels: Mapping[str, str]
    cost: Cost
    statistics: list[Taken]


class News(Answer):
    """An event of the stream: there is something new, up to that step."""

    version: int
    step: int
    state: RunState | None
    alerts: int
    marks_version: int
    age: float | None


DetectorState = Literal["quiet", "alert", "muted", "cannot_run", "failed"]


class DetectorRow(Answer):
    """A detector, and how it stands."""

    name: str
    title: str
    """What its alert means, in a few words."""
    runbook: str | None
    """Relative address."""
    watches: list[str]
    missing: list[str]
    """Of those, what this run does not read."""
    state: DetectorState
    reason: str
    severity: Severity | None
    since: int | None
    score: Number
    """Newest reading; 1 is the alert line."""
    score_step: int | None
    muted_until: int | None


class Detectors(Answer):
    """`recorded`: whether the run log holds scores; older ones do not."""

    recorded: bool
    detectors: list[DetectorRow]


class Mark(Answer):
    """What a person said of an alert."""

    kind: MarkKind
    step: int
    until: int | None
    """Of a mute: the last step."""
    time: float
    note: str
    by: str
    """Who said it, as they call themselves."""


class Sent(Answer):
    """What became of an alert on its way to somebody."""

    to: str
    """Such as `slack`."""
    outcome: Outcome
    time: float
    why: str


class AlertRow(Answer):
    """An alert, as it was raised or cleared."""

    id: str = ""
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
    action: str
    """The headline without the run's name."""
    cause: str
    remedies: list[str]
    ruled_out: list[str]
    evidence: Mapping[str, Number]
    open: bool = False
    """Whether it is the one that stands."""
    ended: int | None = None
    """Step at which it was over or became another severity's."""
    runbook: str | None = None
    """Relative address."""
    mark: Mark | None = None
    since_time: float | None = None
    """Unix seconds of the step `since`."""
    checkpoint: Checkpoint | None = None
    """The last one of before that step."""
    saves: bool = False
    """Whether the run told of any checkpoint."""
    told: list[Sent] = []
    """Who was told of it."""
    hushed_until: int | None = None
    """Its detector was muted when it was raised, until this step."""


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
