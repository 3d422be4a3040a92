"""The loss has gone back up, and stays there."""

from __future__ import annotations

from collections import deque
from math import exp, inf, isfinite, log

from stabmon.catalog import Array
from stabmon.detectors import words
from stabmon.detectors.arrays import of_the_model
from stabmon.detectors.level import POINTS, Level, log_loss
from stabmon.detectors.thresholds import loss as thresholds
from stabmon.records import Finding, Snapshot


class Diverged:
    """Critical where the lower quartile of the last 12 points is above the best level by 40 % of the run's progress;
    a warning before step 200, or where a run from scratch had made no progress to speak of.

    Progress is ln(first loss / best level); with weights that had learnt before ln(unigram loss / best), where the
    first loss may be the best. Score: the quartile's rise, in units of the rise that alerts.
    """

    name = "diverged"
    needs: tuple[str, ...] = ("loss", "pretrained", "unigram_loss")

    def __init__(self) -> None:
        self._start()

    def _start(self) -> None:
        self._level = Level()
        self._steps: deque[int] = deque(maxlen=POINTS + 1)
        self._score = 0.0
        self._since: int | None = None
        self._good = 0
        """Step of the last point before the rise."""
        self._well: int | None = None
        self._left: int | None = None
        """Steps of the last point that was near the best level, at first of the first one, and of the one after it."""
        self._pretrained = False
        self._inherited = 0.0
        """ln(unigram loss / first loss) of weights that had learnt before."""

    def score(self, snapshot: Snapshot) -> Array:
        """float32[1]."""
        z = log_loss(snapshot)
        if isfinite(z):
            if self._steps and snapshot.step < self._steps[-1]:
                self._start()  # a restart: another run begins in the same log
            self._steps.append(snapshot.step)
            self._level.push(z, learn=self._score < 1)  # its own noise must not end an incident
            if not self._pretrained and snapshot.scalar("pretrained") > 0:
                self._pretrained, unigram = True, snapshot.scalar("unigram_loss")
                self._inherited = max(log(unigram) - self._level.first, 0.0) if 0 < unigram < inf else 0.0
            if self._well is None:
                self._well = snapshot.step
            elif self._left is None:
                self._left = snapshot.step
            self._judge(z)
        return of_the_model(self._score, snapshot)

    def explain(self, site: int) -> Finding:
        """How much of the progress is lost."""
        assert self._since is not None, "asked without an alert"
        level, since, progress = self._level, self._since, self._progress
        best, now = exp(self._best), exp(level.recent.median)
        if progress < thresholds.DIVERGED_PROGRESS and not self._pretrained:
            return self._rises(since, now)
        lost = (level.recent.median - self._best) / progress if progress > 0 else 1.0
        back = words.checkpoint_before(self._good)
        share = f"{lost:.0%}" if lost < 1 else "all"
        early = self._steps[-1] < thresholds.EARLY_STEPS
        return Finding(
            severity="warning" if early else "critical",
            action=f"has diverged: the loss was at {best:.4g} and is at {now:.4g} since step {since}, {share} of its "
            f"progress lost. Go back to {back}; every further step is lost",
            cause="Updates are too large for where the run is: the loss is back at a level that it had left, and "
            "stays there.",
            remedies=(
                f"Roll back to {back}, and go on at a third of the learning rate.",
                f"Look at the gradient norm and the data around step {since}; leave those batches out.",
                "Clip gradients at 1; with Adam, lower beta2 to .95, or restart with a longer warm-up.",
            ),
            evidence={"best_loss": best, "loss_level": now, "first_loss": exp(level.first), "progress_lost": lost},
            ruled_out=(self._not_a_few,),
            since=since,
        )

    def _rises(self, since: int, now: float) -> Finding:
        """Of a loss that never fell: there is nothing to go back for, and it may be one that is not meant to fall."""
        first = exp(self._level.first)
        return Finding(
            severity="warning",
            action=f"has a loss that rises: it began at {first:.4g} and is at {now:.4g} since step {since}. Stop it, "
            "unless it need not fall, as in a GAN; nothing was learnt that further steps could build on",
            cause="Updates are too large from the start, or the loss has the wrong sign; or two networks play against "
            "each other.",
            remedies=(
                "Restart with a tenth of the learning rate, or with a warm-up.",
                "Look at the sign of the loss, and whether inputs and targets belong together.",
                "Of networks that play against each other: leave this detector out.",
            ),
            evidence={"first_loss": first, "best_loss": exp(self._level.best), "loss_level": now},
            ruled_out=(self._not_a_few,),
            since=since,
        )

    @property
    def _low(self) -> float:
        """Lower quartile of the last 12 points."""
        return self._level.recent.quantile(0.25)

    @property
    def _not_a_few(self) -> str:
        return f"a few bad batches (9 of the last 12 losses are {exp(self._low):.4g} or more)"

    @property
    def _best(self) -> float:
        return min(self._level.best, self._level.first) if self._inherited else self._level.best

    @property
    def _progress(self) -> float:
        return self._level.first + self._inherited - self._best

    def _judge(self, z: float) -> None:
        level = self._level
        if isfinite(self._best) and level.recent.full:
            early = self._steps[-1] < thresholds.EARLY_STEPS and not self._inherited
            least = thresholds.DIVERGED_EARLY if early else thresholds.DIVERGED_LEAST
            noise = min(level.noise, level.noise_at_best)
            rise = max(thresholds.DIVERGED_SHARE * self._progress, least, thresholds.DIVERGED_NOISE * noise)
            self._score = max((self._low - self._best) / rise, 0.0)
            if z < self._best + rise / 2:
                self._well, self._left = self._steps[-1], None
        if self._score < 1:
            self._since = None
        elif self._since is None:
            # A quarter of the last 12 may be low, and a rise that noise hid may be older than they are.
            self._good = min(self._well or 0, self._steps[0])
            self._since = min(self._steps[1] if self._left is None else self._left, self._steps[1])
