"""What the layers of a run that may stall say: what reaches the last norm, and which gradients the first block."""

from __future__ import annotations

from math import isfinite

import numpy as np

from stabmon.detectors.stall_readings import Spell
from stabmon.detectors.thresholds import stall as thresholds
from stabmon.records import Site, Snapshot


class Stream:
    """Post-LN: whether the last norm reads next to nothing but what the last block adds. Its input is x + f, with a
    stream x of mean square 1, of which 1 / n is left.
    """

    def __init__(self) -> None:
        self.length = float("nan")
        """n, the mean square of the last norm's input, where that norm comes after a sum."""
        self._first = float("nan")
        self.filling, self.swamped = Spell(), Spell()
        self.full = False

    def read(self, snapshot: Snapshot) -> None:
        length = snapshot.scalar("final_norm_input_msq")
        norms = snapshot.layout.sites_of("norm_input_msq")
        if not isfinite(length) or not norms or norms[-1].placement != "post":
            return
        self.length = length
        self._first = self._first if isfinite(self._first) else length
        grown = length >= thresholds.SWAMPED_GROWN * self._first
        self.filling.see(grown and length >= thresholds.FILLING, snapshot.step)
        self.swamped.see(grown and length >= thresholds.SWAMPED, snapshot.step)
        self.full = grown and length >= thresholds.FULL


class Depth:
    """What the layers say: how alike tokens are, and how much of the gradient reaches the lowest block."""

    def __init__(self) -> None:
        self.similarity = float("nan")
        """Token similarity at the middle norm."""
        self.site: Site | None = None
        """The norm at which tokens are most alike."""
        self.ratio = float("nan")
        """The lowest block's gradient over the highest's."""
        self.starved = 0
        """Readings in a row in which the lowest block got next to no gradient."""
        self.stream = Stream()

    def read(self, snapshot: Snapshot) -> None:
        self.stream.read(snapshot)
        if not snapshot.layers_read:
            return
        alike = snapshot["token_similarity"]
        if np.isfinite(alike).any():
            self.similarity = float(alike[len(alike) // 2])
            self.site = snapshot.layout.sites_of("token_similarity")[int(np.nanargmax(alike))]
        norms = snapshot["grad_norm"]
        if not np.isfinite(norms).any():
            return
        sites = snapshot.layout.sites_of("grad_norm")
        blocks = [i for i, site in enumerate(sites) if site.layer is not None and site.role == "block"]
        if len(blocks) < 2:
            return
        low, high = float(norms[blocks[0]]), float(norms[blocks[-1]])
        if np.isfinite(low) and np.isfinite(high) and high > 0:
            self.ratio = low / high
            self.starved = self.starved + 1 if self.ratio < thresholds.STARVED else 0

    def agrees(self, noisy: bool) -> bool:
        """Whether neither reading speaks against a collapse; under dropout noise tokens differ all the same."""
        return (noisy or not self.similarity <= thresholds.ALIKE) and not self.ratio >= thresholds.FADED
