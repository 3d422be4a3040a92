"""What a format is, and what it is recognised by."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

from stabmon.readers.reading import Asked, Notes, Reading
from stabmon.readers.source import Source
from stabmon.readers.text import lines


@dataclass(frozen=True)
class Head:
    """The beginning of a file."""

    raw: bytes
    whole: bool
    """It is all there is."""

    @cached_property
    def _all(self) -> list[str]:
        return [line for line in lines([self.raw], Notes()) if line]

    @cached_property
    def lines(self) -> list[str]:
        """Whole ones, clean."""
        ended = self.whole or self.raw.endswith((b"\n", b"\r", b"\n\0"))
        return self._all if ended else self._all[:-1]

    @cached_property
    def text(self) -> str:
        return "\n".join(self.lines)

    @cached_property
    def document(self) -> str:
        """With the last line, whole or not."""
        return "\n".join(self._all)


@dataclass(frozen=True)
class Format:
    """`readings` yields None where a followed file has nothing new yet. What is to be said goes to source.notes."""

    name: str
    fits: Callable[[Head, Asked], bool]
    readings: Callable[[Source, Head, Asked], Iterator[Reading | None]]
    sure: bool = True
    """False: others are asked first, and until the head ends."""
    document: bool = False
    """Written anew as a whole rather than added to."""
