"""Lower layers that hardly learn: their gradient is a hundredth of the last layer's, or Adam's epsilon shrinks it.

Under Adam a small gradient alone is no harm, since each coordinate moves by about lr; but it is then noise that moves
it, and once sqrt(v) nears epsilon nothing does (Wortsman et al. 2023, arXiv 2309.14322, section 3.4).
"""

from __future__ import annotations

from itertools import compress
from math import isfinite

import numpy as np

from stabmon.catalog import Array
from stabmon.detectors.arrays import Bools, Floats
from stabmon.detectors.dead_layers_finding import Dead, finding
from stabmon.detectors.stall_task import Task
from stabmon.detectors.thresholds import dead_layers as thresholds
from stabmon.detectors.thresholds.stall import RECOVERED
from stabmon.records import Finding, Layout, Snapshot

_TINY = 1e-18


class _Spells:
    """Since when, and for how many readings, each site has been low without a break."""

    def __init__(self, sites: int) -> None:
        self.since: Floats = np.full(sites, np.nan)
        self._readings = np.zeros(sites, int)

    def see(self, low: Bools, known: Bools, step: int) -> None:
        self.since = np.where(known, np.where(low, np.fmin(self.since, step), np.nan), self.since)
        self._readings = np.where(known, np.where(low, self._readings + 1, 0), self._readings)

    def lasting(self, step: int) -> Bools:
        long = step - self.since >= thresholds.HOLD_STEPS
        return long & (self._readings >= thresholds.HOLD_READINGS)


class DeadLayers:
    """Warns of blocks whose gradient stays under a hundredth of the last block's (where norms come after the sum;
    elsewhere it must also have fallen tenfold since the run's start), or in which epsilon sets most updates.

    Score: the larger of ln ratio / ln 1e-2 and epsilon_share / .5. Silent while all tokens are alike, which is
    `context_stall`'s to judge, and where nothing is left to learn. Only blocks are judged, and of those the ones that
    are trained.
    """

    name = "dead_layers"
    needs: tuple[str, ...] = (
        "grad_norm",
        "epsilon_share",
        "context_share",
        "norm_input_msq",
        "loss",
        "unigram_loss",
        "bigram_loss",
        "class_mean_loss",
        "pretrained",
    )

    def __init__(self) -> None:
        self._task = Task()
        self._share = float("nan")
        self._first_loss = float("nan")
        self._layout: Layout | None = None
        self._start(Layout((), ()))

    def _start(self, layout: Layout) -> None:
        self._sites = layout.sites_of("grad_norm")
        count = len(self._sites)
        after = {site.layer for site in layout.sites_of("norm_input_msq") if site.placement == "post"}
        self._is_block = np.array([s.layer is not None and s.role == "block" for s in self._sites], bool)
        self._post = np.array([site.layer in after for site in self._sites], bool)
        self._last = int(np.flatnonzero(self._is_block)[-1]) if self._is_block.any() else -1
        self._many = bool(self._is_block.sum() > 1)
        self._begun: list[tuple[int, Floats]] = []
        self._own: Floats | None = None
        """ln ratio of each site in the run's first steps."""
        self._logs, self._epsilon = np.full(count, np.nan), np.full(count, np.nan)
        self._faded, self._floored = _Spells(count), _Spells(count)
        self._scores: Array = np.zeros(count, np.float32)
        self._step = 0

    def score(self, snapshot: Snapshot) -> Array:
        """float32[block, and other parameters' owners]."""
        if snapshot.layout is not self._layout:
            self._layout = snapshot.layout
            if snapshot.layout.sites_of("grad_norm") != self._sites:
                self._start(snapshot.layout)
        self._read_task(snapshot)
        if self._many and snapshot.layers_read and 0 < snapshot["grad_sq"][self._last] < np.inf:
            self._step = snapshot.step
            self._read(snapshot)
            self._judge()
        return self._scores

    def explain(self, site: int) -> Finding:
        """Which layers, by how much, and whether epsilon has a part in it."""
        by_epsilon = bool(self._floored.lasting(self._step)[site])
        spells = self._floored if by_epsilon else self._faded
        lasting = spells.lasting(self._step)
        dead = Dead(
            by_epsilon=by_epsilon,
            layers=sorted({site.layer for site in compress(self._sites, lasting) if site.layer is not None}),
            since=int(spells.since[site]),
            ratio=float(np.exp(self._logs[site])),
            own=float("nan") if self._own is None else float(np.exp(self._own[site])),
            epsilon=float(self._epsilon[site]),
            epsilon_of_last=float(self._epsilon[self._last]),
            share=self._share,
            progress=self._progress,
        )
        return finding(dead, self._task)

    def _read_task(self, snapshot: Snapshot) -> None:
        self._task.read(snapshot)
        share, loss = snapshot.scalar("context_share"), snapshot.scalar("loss")
        if isfinite(share):
            self._share = share
        if isfinite(loss) and not isfinite(self._first_loss):
            self._first_loss = loss

    @property
    def _progress(self) -> float:
        """Last loss over the first; NaN = unknown."""
        return self._task.losses.get("loss", float("nan")) / self._first_loss if self._first_loss > 0 else float("nan")

    def _read(self, snapshot: Snapshot) -> None:
        norms = snapshot["grad_norm"].astype(float)
        ratio = np.maximum(norms, _TINY) / norms[self._last]
        self._logs = np.where(np.isfinite(norms), np.log(ratio), np.nan)
        shares = snapshot["epsilon_share"].astype(float)
        self._epsilon = np.where(np.isfinite(shares), shares, np.nan) if shares.size else np.full_like(norms, np.nan)
        if self._own is None:
            self._begun.append((self._step, self._logs))
            lasted = self._step - self._begun[0][0] >= thresholds.START_STEPS
            if lasted and len(self._begun) >= thresholds.START_READINGS:
                self._own = np.median([logs for _, logs in self._begun], axis=0)
                self._begun = []

    def _judge(self) -> None:
        if self._own is None:
            return
        idle = self._task.pointless or self._progress < thresholds.CONVERGED
        alike = self._share < RECOVERED
        limit = np.log(thresholds.RATIO)
        fell = self._post | (self._logs < self._own + np.log(thresholds.FELL))
        faded = self._is_block & (self._logs < limit) & fell
        floored = self._is_block & (self._epsilon > thresholds.EPSILON)
        self._faded.see(faded & (not (idle or alike)), np.isfinite(self._logs), self._step)
        self._floored.see(floored & (not idle), np.isfinite(self._epsilon), self._step)
        lasting = self._faded.lasting(self._step), self._floored.lasting(self._step)
        sizes = self._logs / limit, self._epsilon / thresholds.EPSILON
        parts = [np.where(long, np.fmax(size, 1), 0) for long, size in zip(lasting, sizes, strict=True)]
        self._scores = np.maximum(*parts).astype(np.float32)
