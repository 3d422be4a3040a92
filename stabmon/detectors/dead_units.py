"""Hidden units that died in training: no token moves them any more, or every token saturates them.

Where the activation is flat for every token a unit gets no gradient, and mostly never comes back. Some units are dead
from the start on a step's few tokens, and trained networks may be sparse by choice; so it is the rise that is judged.
"""

from __future__ import annotations

from math import isfinite

import numpy as np

from stabmon.catalog import Array
from stabmon.detectors import words
from stabmon.detectors.arrays import Bools, Floats, beside
from stabmon.detectors.thresholds import units as thresholds
from stabmon.records import BATCH_SIZE, Event, Finding, Snapshot


class DeadUnits:
    """Warns where half of a layer's hidden units, and a quarter more than early in the run, are dead or saturated in
    five readings in a row. While all tokens are alike nothing is judged: a unit is then dead for all or for none.

    Score: share / the share that alerts. After a change of the batch size, which is another number of tokens, layers
    that are well have their early share read anew.
    """

    name = "dead_units"
    needs: tuple[str, ...] = ("dead_unit_share", "saturated_unit_share", "context_share", "learning_rate")

    def __init__(self) -> None:
        self._rate = self._share = float("nan")
        self._start(0)

    def _start(self, layers: int) -> None:
        self._first: list[Floats] = []
        self._early = np.full(layers, np.nan)
        self._lost = np.full(layers, np.nan)
        self._dead = np.full(layers, np.nan)
        self._streak = np.zeros(layers, int)
        self._since = np.zeros(layers, int)
        self._scores: Array = np.zeros(layers, np.float32)

    def notice(self, event: Event) -> None:
        """With fewer tokens in a step more units have none."""
        if event.kind == BATCH_SIZE and not (self._scores >= 1).any():
            self._start(len(self._scores))

    def score(self, snapshot: Snapshot) -> Array:
        """float32[feed-forward part]."""
        dead = snapshot["dead_unit_share"]
        if not dead.size:
            return dead  # nearly every run: below level deep
        if len(dead) != len(self._scores):
            self._start(len(dead))
        if snapshot.layers_read and np.isfinite(dead).any():
            self._read(snapshot, dead.astype(np.float64))
        return self._scores

    def _read(self, snapshot: Snapshot, dead: Floats) -> None:
        rate, share = snapshot.scalar("learning_rate"), snapshot.scalar("context_share")
        self._rate = rate if rate > 0 else self._rate
        self._share = share if isfinite(share) else float("nan")
        if share < thresholds.ALIKE:
            return
        lost = dead + beside(snapshot, "saturated_unit_share", len(dead))
        known = np.isfinite(lost)
        self._lost, self._dead = np.where(known, lost, self._lost), np.where(known, dead, self._dead)
        if len(self._first) < thresholds.READINGS:
            self._first.append(np.where(known, lost, 1.0))  # a layer without a beginning is never said to have lost it
            self._early = np.median(self._first, axis=0)
        else:
            self._judge(snapshot.step, known)

    def _judge(self, step: int, known: Bools) -> None:
        limit = np.maximum(thresholds.LOST, self._early + thresholds.RISE)
        score = np.where(np.isnan(self._lost), 0, self._lost) / limit
        over = known & (score >= 1)
        self._since = np.where(over & (self._streak == 0), step, self._since)
        self._streak = np.where(over, self._streak + 1, np.where(known, 0, self._streak))
        lasting = self._streak >= thresholds.READINGS
        self._scores = np.where(lasting, np.maximum(score, 1), np.minimum(score, 0.99)).astype(np.float32)

    def explain(self, site: int) -> Finding:
        """How many units, and how many there were early in the run."""
        lost, dead, since = float(self._lost[site]), float(self._dead[site]), int(self._since[site])
        died, slower = dead >= lost / 2, words.slower(self._rate, 3)
        what = "dead: no token moves them" if died else "saturated: every token drives them to their bound"
        values = {
            "dead_unit_share": dead,
            "saturated_unit_share": lost - dead,
            "early_share": float(self._early[site]),
            "median_of_layers": float(np.nanmedian(self._lost)),
            "context_share": self._share,
            "learning_rate": self._rate,
        }
        return Finding(
            severity="warning",
            action=f"has lost {lost:.0%} of a layer's hidden units since step {since}. Go back to before that step, "
            f"and go on with {slower}; they get no gradient, so waiting brings none of them back",
            cause=f"They are {what}. An update too large moved weights or biases so far that all tokens land where the "
            "activation is flat.",
            remedies=(
                f"Go back to a checkpoint from before step {since}, and go on with {slower}.",
                "Warm up longer, or clip gradients at 1: it takes one large update.",
                "Use GELU, SiLU or a leaky ReLU."
                if died
                else "Put a norm before the activation, or start its weights smaller.",
                "Keep weight decay off the biases, and look at how large they are.",
            ),
            evidence=words.known(values),
            since=since,
            ruled_out=self._ruled_out(site),
        )

    def _ruled_out(self, site: int) -> tuple[str, ...]:
        early, others = float(self._early[site]), float(np.nanmedian(self._lost))
        found = [f"sparse from the start: {early:.0%} of these units were lost early in the run"]
        if self._share >= thresholds.ALIKE:
            found.append(f"tokens that are all alike: context share {self._share:.2g}")
        if len(self._lost) > 2 and others < thresholds.LOST:
            found.append(f"odd or few tokens in the batch: the median layer has lost {others:.0%}")
        return tuple(found)
