"""Ranks that should train copies of one model and do not, ranks that are not read, and one whose data is different.

Under data parallelism all ranks hold the same weights, bit for bit: they start equal and take the same averaged step.
Weights that differ from the start may be parts of a tensor that the loop itself has cut (tensor or expert parallel by
hand); those that were equal, or that get equal gradients, are copies.
"""

from __future__ import annotations

import numpy as np

from stabmon.catalog import Array
from stabmon.detectors import words
from stabmon.detectors.rank_readings import Copies, Losses, Lost
from stabmon.detectors.thresholds import ranks as thresholds
from stabmon.records import Finding, Severity, Snapshot


class RankTrouble:
    """Critical once copies of the model differ between ranks; warns of ranks that are not read; tells of one whose loss
    stays the highest. Silent in a single process.

    Score: readings in a row in which it is so, in units of what alerts.
    """

    name = "rank_trouble"
    needs: tuple[str, ...] = (
        "ranks_read",
        "ranks_lost",
        "rank_weight_spread",
        "rank_grad_spread",
        "rank_loss_spread",
        "rank_loss_highest",
    )

    def __init__(self) -> None:
        self._copies, self._lost, self._losses = Copies(), Lost(), Losses()

    def score(self, snapshot: Snapshot) -> Array:
        """float32[1]; empty where there is one process."""
        read = snapshot["ranks_read"]
        if not read.size:
            return read  # nearly every run: a single process
        if read[0] >= 0:
            self._read(snapshot)
        return np.full(read.size, self._score(), np.float32)

    def _score(self) -> float:
        strikes = max(self._copies.readings, self._lost.readings) / thresholds.READINGS
        return max(strikes, self._losses.readings / thresholds.LOSS_READINGS)

    def _read(self, snapshot: Snapshot) -> None:
        sites = snapshot.layout.sites_of("rank_weight_spread")
        if sites != self._copies.sites:
            self._copies = Copies(sites)
        self._copies.read(snapshot)
        self._lost.read(snapshot)
        self._losses.read(snapshot)

    def explain(self, site: int) -> Finding:
        """The worst that is the case, with the block that differs most where copies differ."""
        if self._copies.readings >= thresholds.READINGS:
            return self._differ()
        return self._unread() if self._lost.readings >= thresholds.READINGS else self._other_data()

    def _differ(self) -> Finding:
        copies, since = self._copies, self._copies.since
        worst, blocks = copies.worst, int(copies.apart.sum())
        gradients = float(copies.grad_spread[worst])
        values = {
            "rank_weight_spread": float(copies.spread[worst]),
            "rank_grad_spread": gradients,
            "blocks_apart": float(blocks),
            "ranks_read": float(self._lost.ranks_read),
        }
        if not copies.sure:
            told = f"has other weights on every rank, in all {blocks} blocks, since its start, and averages nothing"
        else:
            where = f"in {blocks} of {len(copies.sites)} blocks"
            told = f"has copies of the model that differ between ranks since step {since}, {where}"
        return Finding(
            severity="critical" if copies.sure else "warning",
            action=f"{told}. Stop it and load one checkpoint of before on all ranks; what is trained from there on is "
            "lost",
            cause=_cause(gradients),
            remedies=_SYNCHRONISE if not gradients <= thresholds.EQUAL else _RELOAD,
            evidence=words.known(values),
            since=since,
            site=copies.sites[worst],
            ruled_out=_ruled_out(copies, gradients),
        )

    def _unread(self) -> Finding:
        read, lost, since = self._lost.ranks_read, self._lost.ranks_lost, self._lost.since
        return Finding(
            severity="warning",
            action=f"is not read in full on {lost} of {read + lost} ranks since step {since}. Look into "
            "their logs; the training goes on, but what befalls those ranks is not seen",
            cause="A part of stabmon failed there and was dropped: means are over the other ranks, and sums over "
            "sharded tensors are not told any more.",
            remedies=(
                "Search the ranks' logs for 'stabmon:': the part and its traceback stand there.",
                "Report it; until then leave the part out (exclude=, or a lower level=).",
            ),
            evidence={"ranks_read": float(read), "ranks_lost": float(lost)},
            since=since,
            ruled_out=(f"a dead rank: all {read + lost} took part in this step's all-reduce",),
        )

    def _other_data(self) -> Finding:
        losses = self._losses
        severity: Severity = "warning" if losses.apart >= thresholds.LOSS_FAR else "info"
        equal = bool(self._copies.sites) and not self._copies.apart.any()
        return Finding(
            severity=severity,
            action=f"has the highest loss on rank {losses.rank} in every reading since step {losses.since}, at least "
            f"{losses.apart:.0%} of it above the lowest rank's. Compare that rank's batches with the others'",
            cause="Its data is of another kind, such as an unshuffled shard, a damaged file or padding that counts.",
            remedies=(
                f"Print a few batches of rank {losses.rank} and of another rank.",
                "Shuffle before the data is divided among the ranks (DistributedSampler: set_epoch in each epoch).",
            ),
            evidence={"rank_loss_spread": losses.apart, "rank": float(losses.rank)},
            since=losses.since,
            ruled_out=("weights of its own: those of all ranks are equal (rank_weight_spread 0)",) if equal else (),
        )


def _cause(gradients: float) -> str:
    if gradients <= thresholds.EQUAL:
        return (
            "Gradients are averaged, so each rank takes the same step from other weights: they were not equal at the "
            "start or after a load, or were changed on one rank alone (a damaged memory included)."
        )
    if gradients > thresholds.EQUAL:
        return "The ranks' gradients differ as well: they are not averaged, so each rank trains a model of its own."
    return "The ranks take different steps, or started from different weights."


def _ruled_out(copies: Copies, gradients: float) -> tuple[str, ...]:
    found = []
    if gradients <= thresholds.EQUAL:
        found.append(f"a missing all-reduce: gradients are equal (rank_grad_spread {gradients:.2g})")
    if copies.sure:
        found.append(
            "tensors cut over the ranks by hand: their gradients would differ"
            if gradients <= thresholds.EQUAL
            else "tensors cut over the ranks by hand: this block was equal before"
        )
    return tuple(found)


_SYNCHRONISE = (
    "Call the wrapped model (DistributedDataParallel's own forward), not the module inside it.",
    "Leave no_sync() before the last micro-batch of a step: its backward pass is the one that averages.",
    "Register parameters that are made after wrapping: wrap anew, or average their gradients by hand.",
    "Averaging weights now and then on purpose (local SGD) looks the same: then leave this detector out.",
)
_RELOAD = (
    "Load the same checkpoint on every rank, or broadcast the weights from one, before the model is wrapped.",
    "Look for code that changes weights on one rank alone (EMA copies, clipping, pruning, an evaluation).",
    "If it comes back on one machine: test its memory and its GPU, and exchange it.",
)
