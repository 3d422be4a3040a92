"""Cells of a loss that are blank because it was not finite."""

from __future__ import annotations

from collections.abc import Mapping

from stabmon.readers.reading import LARGEST_STEP, whole

_STEADY = 20
"""Rows in a row that all have a loss, after which one without it, but else alike, is a loss that was not finite."""


class Blanks:
    """Finds rows whose loss is blank because it was NaN: alike in all else to the rows that have one and as far from
    the row before as those are, after a stretch in which no such row lacked it. A log that writes its loss in every
    tenth row is none of that, nor are rows of results between.
    """

    def __init__(self, step: str, may_lack: set[str], tells_nothing: set[str]) -> None:
        """may_lack: names that a row without a loss need not have. tells_nothing: names such as the step's."""
        self._step, self._may_lack, self._tells_nothing = step, may_lack, tells_nothing
        self._alike: set[str] = set()
        self._like: Mapping[str, object] = {}
        self._vary: set[str] = set()
        self._count = 0
        """Rows with a loss."""
        self._before: int | None = None
        self._nearest, self._furthest = LARGEST_STEP, -LARGEST_STEP
        self._off = False

    def learn(self, row: Mapping[str, object], step: int | None) -> None:
        """A row with a loss."""
        self._count += 1
        if self._count <= _STEADY:
            self._alike = self._filled(row)
            self._vary |= {name for name in self._alike if row[name] != self._like.get(name)} if self._like else set()
            self._like = row
        if step is not None and self._before is not None:
            apart = step - self._before
            if apart < self._nearest:
                self._nearest = apart
            if apart > self._furthest:
                self._furthest = apart
        self._before = step

    def hides(self, row: Mapping[str, object]) -> bool:
        """Of a row without one. ValueError: its step is none."""
        if self._off or self._filled(row) != self._alike:
            return False
        self._off = self._count < _STEADY
        return not self._off and self._in_time(whole(row.get(self._step)))

    @property
    def bare(self) -> bool:
        """What it hides has nothing in its row that is not in all: as a last one it may be but the end of a table."""
        return self._alike & self._vary <= self._tells_nothing

    def _filled(self, row: Mapping[str, object]) -> set[str]:
        return {name for name, cell in row.items() if cell is not None and cell != ""} - self._may_lack

    def _in_time(self, step: int | None) -> bool:
        if step is None or self._before is None:
            return True
        apart, self._before = step - self._before, step
        return self._nearest <= apart <= self._furthest
