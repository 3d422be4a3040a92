"""The loss has left every level it ever had, within two points."""

from __future__ import annotations

from math import exp, isfinite, nan

from stabmon.catalog import Array
from stabmon.detectors import words
from stabmon.detectors.arrays import of_the_model
from stabmon.detectors.level import Level, log_loss
from stabmon.detectors.thresholds import loss as thresholds
from stabmon.records import Finding, Snapshot


class Exploded:
    """Critical where two points in a row are far above the best level: by twice the run's progress, x5 and 20 times
    the noise; or x10 above the start, however much they swing. Before step 200 by x30, and before there is a level, x30
    above the first loss.

    Score: the lower one's rise, in units of the rise that alerts.
    """

    name = "exploded"
    needs: tuple[str, ...] = ("loss",)

    def __init__(self) -> None:
        self._start()

    def _start(self) -> None:
        self._level = Level()
        self._last = (-1, nan)
        self._before = 0
        """Step of the point before the last one."""
        self._good = 0
        """Step of the last point before the rise."""
        self._both = nan
        """The lower of the last two points."""
        self._score = 0.0
        self._since: int | None = None

    def score(self, snapshot: Snapshot) -> Array:
        """float32[1]."""
        z = log_loss(snapshot)
        if isfinite(z):
            if snapshot.step < self._last[0]:
                self._start()  # a restart: another run begins in the same log
            self._judge(snapshot.step, z)
            self._before, self._last = self._last[0], (snapshot.step, z)
        return of_the_model(self._score, snapshot)

    def explain(self, site: int) -> Finding:
        """From what to what."""
        assert self._since is not None, "asked without an alert"
        level, now, since = self._level, exp(self._last[1]), self._since
        back = words.checkpoint_before(self._good)
        known = exp(level.best if isfinite(level.best) else level.first)
        return Finding(
            severity="critical",
            action=f"has exploded: the loss was at {known:.4g} and is {now:.4g} since step {since}. Stop it and go "
            f"back to {back}; every further step is lost",
            cause="One or two updates threw the weights far away; the loss is above all it ever was.",
            remedies=(
                f"Roll back to {back}, and go on at a third of the learning rate.",
                "Clip gradients at 1.",
                f"Look at the batch of step {since}: a wrong scale, wrong labels, empty targets.",
                "If it runs in float16: use bfloat16.",
            ),
            evidence={"best_loss": known, "loss": now, "first_loss": exp(level.first)},
            ruled_out=(f"one bad batch (two losses in a row are {exp(self._both):.4g} or more)",),
            since=since,
        )

    def _judge(self, step: int, z: float) -> None:
        level = self._level
        self._both = both = min(z, self._last[1]) if isfinite(self._last[1]) else z
        if isfinite(level.best):
            early = step < thresholds.EARLY_STEPS
            rise = max(
                thresholds.EXPLODED_SHARE * level.progress,
                thresholds.EXPLODED_EARLY if early else thresholds.EXPLODED_LEAST,
                thresholds.EXPLODED_NOISE * level.noise,
            )
            over = 0.0 if early else (both - level.start) / thresholds.EXPLODED_START
            self._score = max((both - level.best) / rise, over, 0.0)
        elif isfinite(level.first):
            self._score = max((both - level.first) / thresholds.EXPLODED_EARLY, 0.0)
        if self._score < 1:
            self._since = None
            level.push(z)
        elif self._since is None:
            self._since, self._good = self._last[0], self._before
