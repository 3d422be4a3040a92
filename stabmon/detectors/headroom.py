"""How near norm inputs come to the largest number of float16, and when they will be there."""

from __future__ import annotations

import numpy as np

from stabmon.detectors.forecast import REACH, SPACING, Crossing, crossing
from stabmon.detectors.thresholds import precision as thresholds
from stabmon.detectors.trail import Trail
from stabmon.records import Site, Snapshot


class Headroom:
    """ln(65,504 / largest value) of the norm that has the least left, among those whose input is float16. bfloat16 and
    float32 have 88 nats: what overflows there was lost long before.
    """

    def __init__(self) -> None:
        self.nats = float("nan")
        """Of the last reading; NaN: no float16."""
        self.largest = float("nan")
        self.site: Site | None = None
        self._trail = Trail(REACH, SPACING)

    def read(self, snapshot: Snapshot) -> bool:
        """Whether anything was."""
        nats, largest = snapshot["precision_headroom"], snapshot["activation_max"]
        if nats.size == 0 or nats.size != largest.size or np.isnan(nats).all():
            return False
        with np.errstate(divide="ignore", invalid="ignore"):
            limit = nats + np.log(largest)
        narrow = np.abs(limit - thresholds.FLOAT16) < 0.01
        if not narrow.any():
            return False
        least = int(np.argmin(np.where(narrow, nats, np.inf)))
        self.nats, self.largest = float(nats[least]), float(largest[least])
        self.site = snapshot.layout.sites_of("precision_headroom")[least]
        self._trail.add(snapshot.step, np.array([-self.nats]))
        return True

    def forecast(self) -> Crossing | None:
        """When it is 0."""
        return crossing(*self._trail.column(0), 0.0)
