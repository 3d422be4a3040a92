"""The last part of a series, thinned, and its robust slope."""

from __future__ import annotations

import numpy as np

from stabmon.detectors.arrays import Floats
from stabmon.detectors.slope import theil_sen


class Trail:
    """Readings whose place x (the step, or its logarithm) lies within `reach` of the last one's, at least `spacing`
    apart but for the last; four at least, however far they reach back.
    """

    LEAST = 4

    def __init__(self, reach: float, spacing: float) -> None:
        self._reach = reach
        self._spacing = spacing
        self._places: list[float] = []
        self._values: list[Floats] = []
        self.highest_before: Floats | None = None
        """Of the values that have left, float[sites]; None: none has."""

    def __len__(self) -> int:
        return len(self._places)

    def add(self, place: float, values: Floats) -> None:
        """The places rise."""
        if len(self) > 1 and self._places[-1] - self._places[-2] < self._spacing:
            self._places.pop()
            self._values.pop()
        self._places.append(place)
        self._values.append(values)
        while len(self) > self.LEAST and self._places[0] < place - self._reach:
            self._places.pop(0)
            left = self._values.pop(0)
            self.highest_before = left if self.highest_before is None else np.fmax(self.highest_before, left)

    @property
    def span(self) -> tuple[float, float]:
        """The first place and the last."""
        return self._places[0], self._places[-1]

    @property
    def places(self) -> Floats:
        return np.array(self._places)

    @property
    def values(self) -> Floats:
        """float[readings, sites]."""
        return np.array(self._values)

    @property
    def last(self) -> Floats:
        """float[sites]."""
        return self._values[-1]

    def column(self, site: int) -> tuple[list[float], list[float]]:
        """The places, and one site's values."""
        return self._places, [float(row[site]) for row in self._values]

    def slope(self) -> Floats | None:
        """Of each site; None with fewer than four readings."""
        return theil_sen(self.places, self.values) if len(self) >= self.LEAST else None
