"""Prometheus' text format for gauges whose labels stay the same from scrape to scrape."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from threading import Lock

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

CACHE_SECONDS = 0.5
"""A rendering is handed out for this long: scrapes cost training at most two renderings a second."""


class Shared:
    """One rendering for all who ask at once or within half a second."""

    def __init__(self, render: Callable[[], bytes], clock: Callable[[], float]) -> None:
        self._render = render
        self._clock = clock
        self._rendering = Lock()
        self._text = b""
        self._stale_at = float("-inf")

    def get(self) -> bytes:
        with self._rendering:
            if self._clock() >= self._stale_at:
                self._stale_at = self._clock() + CACHE_SECONDS
                self._text = self._render()
            return self._text

    def expire(self) -> None:
        """What is asked for from now on is made anew."""
        with self._rendering:
            self._stale_at = float("-inf")


class Frame:
    """All of the text but the values, made once: rendering 2,000 series from scratch takes ten times as long."""

    def __init__(self, families: Iterable[Metric]) -> None:
        """`families`: with every sample that may come, whatever its value."""
        self._families = [_take_apart(family) for family in families]

    def fill(self, values: Iterable[Sequence[float]]) -> bytes:
        """The text with these values, one sequence per family, one value per sample; NaN or too short = absent."""
        pieces: list[str] = []
        for family, found in zip(self._families, values, strict=True):
            pieces.append(family.head)
            pieces += [
                f"{before}{floatToGoString(value)}\n"  # type: ignore[no-untyped-call]
                for before, value in zip(family.before, found, strict=False)
                if value == value
            ]
        return "".join(pieces).encode()


def text_of(families: Iterable[Metric]) -> bytes:
    """The text format 0.0.4."""
    registry = CollectorRegistry()
    registry.register(_Given(families))
    return generate_latest(registry)


@dataclass(frozen=True, slots=True)
class _Parts:
    head: str
    """The lines HELP and TYPE."""
    before: Sequence[str]
    """Each sample's name and labels."""


def _take_apart(family: Metric) -> _Parts:
    lines = text_of([family]).decode().split("\n")[:-1]
    count = len(family.samples)
    head = "".join(f"{line}\n" for line in lines[: len(lines) - count])
    return _Parts(head, [line[: line.rindex(" ") + 1] for line in lines[len(lines) - count :]])


class _Given(Collector):
    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        yield from self._families
