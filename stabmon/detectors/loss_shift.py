"""The loss is on another level from one step to the next: the data changed, or an update threw the weights."""

from __future__ import annotations

from collections import deque
from math import isfinite

from stabmon.catalog import Array
from stabmon.detectors import shift_findings as findings
from stabmon.detectors.arrays import of_the_model
from stabmon.detectors.shift_readings import Level, Rate, Repeats, Updates
from stabmon.detectors.thresholds import shift as thresholds
from stabmon.records import BATCH_SIZE, RESUME, Event, Finding, Severity, Snapshot

_HIGHEST = 1e6
"""Score: as a float32 it must stay finite."""


class LossShift:
    """Tells whose fault it is that the loss rises above what the frequencies of its targets explain: the data's, as
    soon as the rise is there (a baseline loss moved, or targets no longer follow their inputs, or the updates were
    ordinary while the loss is as of a model that knows nothing), critical after 8 points; or that of the updates, once
    it has lasted 12, as a warning. Right after a resume, at a loss such as the run's first one, it is the weights: no
    checkpoint was loaded. Beside it: the loader hands out the same batch again and again.

    The rise is of the loss over the unigram loss, in which the noise of the batches cancels. Without baseline losses it
    is silent. Score: the rise in units of what alerts. Nothing is learnt from it; after 64 points, unless it is
    critical, it is the new level.
    """

    name = "loss_shift"
    needs: tuple[str, ...] = (
        "loss",
        "unigram_loss",
        "bigram_loss",
        "uniform_loss",
        "learning_rate",
        "output_change_kl",
        "update_sq",
    )

    def __init__(self) -> None:
        self._score = 0.0
        self._first: float | None = None
        """Loss of the run's first step."""
        self._resumed: int | None = None
        self._start()

    def _start(self) -> None:
        self._loss, self._excess, self._unigram, self._bigram = Level(), Level(), Level(), Level()
        self._updates, self._rate, self._repeats = Updates(), Rate(), Repeats()
        self._steps: deque[int] = deque(maxlen=thresholds.NOW)
        self._risen: Severity | None = None
        self._since: int | None = None
        """First step of the rise that is open."""
        self._good = 0
        """The step before it that had a loss."""
        self._points = 0
        self._jumped = False
        """Whether it began soon after a jump of the learning rate, which explains it."""
        self._data = self._moved = False
        """Whether in this rise the data are to blame, and whether they themselves show it."""

    def notice(self, event: Event) -> None:
        """With another batch size, another noise is no news. A resume may be one without its checkpoint."""
        if event.kind == BATCH_SIZE:
            self._start()
        elif event.kind == RESUME:
            self._resumed = event.step

    def score(self, snapshot: Snapshot) -> Array:
        """float32[1]."""
        loss, unigram = snapshot.scalar("loss"), snapshot.scalar("unigram_loss")
        self._updates.read(snapshot)
        if isfinite(loss) and isfinite(unigram):
            if self._steps and snapshot.step < self._steps[-1]:
                self._start()  # a restart: another run begins in the same log
            self._steps.append(snapshot.step)
            self._first = loss if self._first is None else self._first
            self._read(snapshot, loss, unigram)
            self._risen = self._of_rise()
            rise = min(max(self._rise, 0.0), _HIGHEST)
            self._score = max(rise, 1.0) if self._risen or self._repeated else min(rise, 0.99)
        return of_the_model(self._score, snapshot)

    def _read(self, snapshot: Snapshot, loss: float, unigram: float) -> None:
        learn = self._since is None
        self._loss.read(loss, learn)
        self._excess.read(loss - unigram, learn)
        self._unigram.read(unigram, learn)
        self._bigram.read(snapshot.scalar("bigram_loss"), learn)
        self._rate.read(snapshot)
        # A predictor that does no better falls back on the even guess, which is always the same.
        if unigram < snapshot.scalar("uniform_loss") - thresholds.EVEN:
            self._repeats.read(snapshot.step, unigram)

    @property
    def _changed(self) -> bool:
        """Whether what the targets are, or what they follow, is not what it was."""
        return max(abs(self._unigram.change), abs(self._bigram.change)) > 1 or self._bigram.gone

    @property
    def _rise(self) -> float:
        """With other targets the unigram loss may have risen as far as the loss."""
        return max(self._excess.change, self._loss.change if self._changed or self._moved else 0.0)

    @property
    def _repeated(self) -> Severity | None:
        if self._repeats.count < thresholds.SAME_STEPS:
            return None
        return "critical" if self._repeats.count >= thresholds.SAME_LONG else "warning"

    def _of_rise(self) -> Severity | None:
        if self._since is None:
            if self._rise <= 1:
                return None
            self._good, self._since, self._points, self._data = self._steps[-3], self._steps[-2], 1, False
            self._jumped = self._rate.jumped(self._since)
        self._points += 1
        if self._over():
            self._since, self._moved = None, False
            return None
        ignorant = self._loss.now > min(self._unigram.before, self._unigram.now) + thresholds.IGNORANT
        self._moved |= self._changed
        self._data |= self._moved or (ignorant and not self._jumped and self._updates.ordinary(self._steps[-1]))
        if not self._data:
            lasts = self._points >= thresholds.LASTS_ELSE and not self._jumped
            return "warning" if lasts else None
        lasts = self._points >= thresholds.LASTS or self._loss.now > thresholds.AT_ONCE * self._loss.before
        still = self._changed or not self._moved
        return "critical" if self._risen == "critical" or (still and ignorant and lasts) else "warning"

    def _over(self) -> bool:
        """Whether the rise is, or has become the new level."""
        if self._rise < 0.5:
            return True
        if self._points <= thresholds.MEMORY or self._risen == "critical":
            return False
        self._loss, self._excess, self._unigram, self._bigram = Level(), Level(), Level(), Level()
        return True

    @property
    def _anew(self) -> bool:
        """Whether the rise began with a resume, and the loss is where the run's first one was."""
        if self._since is None or self._resumed is None or self._first is None:
            return False
        just = abs(self._since - self._resumed) <= thresholds.NOW
        return just and abs(self._loss.now - self._first) <= thresholds.AS_FIRST * self._first

    def explain(self, site: int) -> Finding:
        """Which of the four it is, and what was read of the data and of the updates."""
        if self._risen is None or self._since is None:
            assert self._repeated is not None, "asked without an alert"
            return findings.of_repeats(self._repeated, self._repeats, self._loss.now, self._unigram.now)
        losses = {"loss": self._loss, "unigram_loss": self._unigram, "bigram_loss": self._bigram}
        if self._anew:
            return findings.of_weights(self._risen, self._since, losses, self._updates)
        if self._data:
            ordinary = self._updates.ordinary(self._steps[-1])
            return findings.of_data(self._risen, self._since, losses, self._updates, self._moved, ordinary)
        return findings.of_updates(self._since, self._good, losses, self._updates)
