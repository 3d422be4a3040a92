"""What is known of several ranks: whether copies of the model are equal, how many are read, whose loss is highest."""

from __future__ import annotations

from math import inf

import numpy as np

from stabmon.detectors.arrays import Bools
from stabmon.detectors.thresholds import ranks as thresholds
from stabmon.records import Site, Snapshot


class Copies:
    """Which blocks are copies that differ."""

    def __init__(self, sites: tuple[Site, ...] = ()) -> None:
        self.sites = sites
        self.spread = np.zeros(len(sites))
        self.grad_spread = np.full(len(sites), np.nan)
        self.apart: Bools = np.zeros(len(sites), bool)
        self.readings = 0
        """In a row in which some differ."""
        self.since = 0
        self.sure = False
        """Whether those are copies for sure; else all blocks have differed from the start, gradients and losses too."""
        self._were_equal: Bools = np.zeros(len(sites), bool)

    def read(self, snapshot: Snapshot) -> None:
        spread, gradients = snapshot["rank_weight_spread"], snapshot["rank_grad_spread"]
        known = ~np.isnan(spread)
        if not known.any():
            return
        self.spread = np.where(known, spread, self.spread)
        if gradients.size == spread.size:
            self.grad_spread = np.where(np.isnan(gradients), self.grad_spread, gradients)
        differ = self.spread > thresholds.EQUAL
        self._were_equal |= known & ~differ
        copies = self._were_equal | (self.grad_spread <= thresholds.EQUAL)
        self.sure = bool((differ & copies).any())
        strangers = differ.all() and snapshot.scalar("rank_loss_spread") > thresholds.EQUAL
        self.apart = differ & copies if self.sure or not strangers else differ
        if not self.readings:
            self.since = snapshot.step
        self.readings = self.readings + 1 if self.apart.any() else 0

    @property
    def worst(self) -> int:
        """Index of the block that differs most."""
        return int(np.argmax(np.where(self.apart, self.spread, -1)))


class Lost:
    """Ranks that are not read in full."""

    def __init__(self) -> None:
        self.ranks_read = self.ranks_lost = 0
        self.readings = 0
        """In a row in which some are lost, and others are read."""
        self.since = 0

    def read(self, snapshot: Snapshot) -> None:
        read, lost = snapshot.scalar("ranks_read"), snapshot.scalar("ranks_lost")
        if not (0 <= read < inf and 0 <= lost < inf):
            return
        self.ranks_read, self.ranks_lost = int(read), int(lost)
        if not self.readings:
            self.since = snapshot.step
        self.readings = self.readings + 1 if self.ranks_read and self.ranks_lost else 0


class Losses:
    """How long one rank has had the highest loss, far above the lowest."""

    def __init__(self) -> None:
        self.rank = -1
        self.readings = 0
        self.since = 0
        self.apart = 0.0
        """Least spread in those readings."""

    def read(self, snapshot: Snapshot) -> None:
        spread, rank = snapshot.scalar("rank_loss_spread"), snapshot.scalar("rank_loss_highest")
        if np.isnan(spread) or not np.isfinite(rank):
            return
        if spread < thresholds.LOSS_APART:
            self.readings = 0
        elif self.readings and rank == self.rank:
            self.readings, self.apart = self.readings + 1, min(self.apart, spread)
        else:
            self.rank, self.readings, self.since, self.apart = int(rank), 1, snapshot.step, spread
