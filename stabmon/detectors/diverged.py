"""The loss has gone back up, and stays there."""

from __future__ import annotations

from collections import deque
from math import exp, isfinite

from stabmon.catalog import Array
from stabmon.detectors import words
from stabmon.detectors.arrays import of_the_model
from stabmon.detectors.level import POINTS, Level, log_loss
from stabmon.detectors.thresholds import loss as thresholds
from stabmon.records import Finding, Snapshot


class Diverged:
    """Critical where the lower quartile of the last 12 points is above the best level by 40 % of the run's progress;
    a warning before step 200, or where a run from scratch had made no progress to speak of.

    Progress is ln(first loss / best level). Score: the quartile's rise, in units of the rise that alerts.
    """

    name = "diverged"
    needs: tuple[str, ...] = ("loss", "pretrained")

    def __init__(self) -> None:
        self._start()

    def _start(self) -> None:
        self._level = Level()
        self._steps: deque[int] = deque(maxlen=POINTS + 1)
        self._score = 0.0
        self._since: int | None = None
        self._good = 0
        """Step of the last point before the rise."""
        self._pretrained = False

    def score(self, snapshot: Snapshot) -> Array:
        """float32[1]."""
        z = log_loss(snapshot)
        if isfinite(z):
            if self._steps and snapshot.step < self._steps[-1]:
                self._start()  # a restart: another run begins in the same log
            self._steps.append(snapshot.step)
            self._pretrained |= snapshot.scalar("pretrained") > 0
            self._level.push(z, learn=self._score < 1)  # its own noise must not end an incident
            self._judge()
        return of_the_model(self._score, snapshot)

    def explain(self, site: int) -> Finding:
        """How much of the progress is lost."""
        assert self._since is not None, "asked without an alert"
        level, since = self._level, self._since
        best, now = exp(level.best), exp(level.recent.median)
        if level.progress < thresholds.DIVERGED_PROGRESS and not self._pretrained:
            return self._rises(since, now)
        lost = (level.recent.median - level.best) / level.progress if level.progress > 0 else 1.0
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

    def _judge(self) -> None:
        level = self._level
        if isfinite(level.best):
            least = thresholds.DIVERGED_EARLY if self._steps[-1] < thresholds.EARLY_STEPS else thresholds.DIVERGED_LEAST
            noise = min(level.noise, level.noise_at_best)
            rise = max(thresholds.DIVERGED_SHARE * level.progress, least, thresholds.DIVERGED_NOISE * noise)
            self._score = max((self._low - level.best) / rise, 0.0)
        if self._score < 1:
            self._since = None
        elif self._since is None:
            self._good, self._since = self._steps[0], self._steps[1]
