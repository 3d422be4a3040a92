"""What the JSON API answers about numbers over steps and layers."""

from __future__ import annotations

from stabmon.server.numbers import Answer


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


class Series(Answer):
    """A point covers the steps after the one before it, up to its own."""

    statistic: str
    unit: str
    help: str
    steps: list[int]
    times: list[float]
    """Unix seconds at each point; where the clock was set back they stand still."""
    lines: list[Line]


class Curves(Answer):
    """In the order in which they were asked for; without lines what this run has not."""

    curves: list[Series]


class Layers(Answer):
    """A matrix over equally wide ranges of steps.

    `values[i][j]`: highest reading of site i in the `width` steps from `steps[j]` on.
    """

    statistic: str
    unit: str
    help: str
    width: int
    steps: list[int]
    times: list[float]
    """Unix seconds, one for each step of `steps`."""
    sites: list[Place]
    values: list[list[float | None]]


class Band(Answer):
    """Between what a healthy model begins; aligned with the sites."""

    low: list[float | None]
    high: list[float | None]
    text: str


class Profile(Answer):
    """A statistic over the layers: at the first step read, at one that was asked for, and now."""

    statistic: str
    unit: str
    help: str
    sites: list[Place]
    first_step: int
    first: list[float | None]
    step: int | None
    at: list[float | None]
    """The newest reading at or before the step that was asked for; empty where none was."""
    latest_step: int
    latest: list[float | None]
    band: Band | None
