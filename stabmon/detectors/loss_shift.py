"""The loss is on another level from one step to the next: the data changed, or an update threw the weights."""

from __future__ import annotations

from collections import deque
from math import exp, isfinite
from statistics import median

from stabmon.catalog import Array
from stabmon.detectors.level import log_loss, of_the_model
from stabmon.detectors.rises import Rise, Rises
from stabmon.detectors.shift_readings import Baseline, Repeats, Updates
from stabmon.detectors.thresholds import shift as thresholds
from stabmon.records import BATCH_SIZE, Event, Finding, Severity, Snapshot


class LossShift:
    """Tells a data fault from a fault of the updates where the loss jumps over its trend, as `spike` sees it: a data
    fault as soon as the rise is there (the baseline losses moved, or the updates were ordinary while the loss is as of
    a model that knows nothing), critical after 8 points; anything else once it has lasted 12, as a warning.
    Beside it: the loader hands out the same batch again and again.

    Without baseline losses it is silent. Score: that of the rise.
    """

    name = "loss_shift"
    needs: tuple[str, ...] = (
        "loss",
        "unigram_loss",
        "bigram_loss",
        "learning_rate",
        "output_change_kl",
        "trust_ratio",
        "update_sq",
    )

    def __init__(self) -> None:
        self._rises, self._updates, self._repeats = Rises(slowly=False), Updates(), Repeats()
        self._unigram, self._bigram = Baseline("unigram_loss"), Baseline("bigram_loss")
        self._step = 0
        self._logs: deque[float] = deque(maxlen=thresholds.NOW)
        """ln of the last losses."""
        self._verdict: Severity | None = None
        self._moved = self._data = False
        """Whether in this rise a baseline moved, and whether the data are to blame."""
        self._score = 0.0

    def notice(self, event: Event) -> None:
        """With another batch size, another level or noise is no news."""
        if event.kind == BATCH_SIZE:
            self._rises.change()
            self._repeats = Repeats()

    def score(self, snapshot: Snapshot) -> Array:
        """float32[1]."""
        z = log_loss(snapshot)
        if isfinite(z) and snapshot["unigram_loss"].size:
            self._step = snapshot.step
            self._logs.append(z)
            self._read(snapshot, z)
        return of_the_model(self._score, snapshot)

    def _read(self, snapshot: Snapshot, z: float) -> None:
        keep = self._verdict == "critical"
        rise = self._rises.see(snapshot.step, z, snapshot.scalar("learning_rate"), keep=keep)
        for baseline in (self._unigram, self._bigram):
            baseline.read(snapshot, learn=self._rises.open is None)
        self._updates.read(snapshot)
        self._repeats.read(snapshot)
        self._verdict = self._of_repeats() or self._of_rise(self._rises.open)
        self._score = max(rise, 1.0) if self._verdict else min(rise, 0.99)

    def _of_repeats(self) -> Severity | None:
        if self._repeats.count < thresholds.SAME_STEPS:
            return None
        return "critical" if self._repeats.count >= thresholds.SAME_LONG else "warning"

    def _of_rise(self, rise: Rise | None) -> Severity | None:
        if rise is None:
            self._moved = self._data = False
            return None
        if not isfinite(self._unigram.before):
            return None
        moved = self._unigram.moved or self._bigram.moved
        ignorant = exp(self._level) > self._unigram.before - thresholds.IGNORANT
        self._moved |= moved
        self._data |= moved or (ignorant and self._updates.ordinary(self._step))
        if not self._data:
            return "warning" if rise.points >= thresholds.LASTS_ELSE else None
        still = moved or not self._moved
        lasts = rise.points >= thresholds.LASTS or self._level - rise.level > thresholds.AT_ONCE
        return "critical" if self._verdict == "critical" or (still and ignorant and lasts) else "warning"

    @property
    def _level(self) -> float:
        """ln of the loss as it is now."""
        return median(self._logs)

    def explain(self, site: int) -> Finding:
        """Which of the two it is, and what was read of the data and of the updates."""
        assert self._verdict is not None, "asked without an alert"
        if self._of_repeats():
            return self._repeated(self._verdict)
        rise = self._rises.open
        assert rise is not None, "a shift is a rise"
        return self._of_data(self._verdict, rise) if self._data else self._of_updates(rise)

    def _of_data(self, severity: Severity, rise: Rise) -> Finding:
        now, level, since = exp(self._level), exp(rise.level), rise.since
        lost = "every further step unlearns" if severity == "critical" else "nothing is lost yet if it is mended soon"
        return Finding(
            severity=severity,
            action=f"has other data since step {since}: the loss went from {level:.4g} to {now:.4g} at once. Stop it, "
            f"mend the data and go back to a checkpoint before step {since}; {lost}",
            cause="What the targets are, or what follows what, has changed; the weights are what they were."
            if self._moved
            else "Targets no longer belong to their inputs, or the inputs changed; the weights are what they were.",
            remedies=(
                f"Look at the batches from step {since} on, as text: shuffled labels, another tokenizer, another file.",
                f"Go back to a checkpoint before step {since} once the data are mended; keep the learning rate.",
                "If the change was meant (another mixture of data): let it run, the loss falls from here on.",
            ),
            evidence=self._evidence(rise, 1.0),
            ruled_out=self._ordinary_updates(),
            since=since,
        )

    def _of_updates(self, rise: Rise) -> Finding:
        now, level, since = exp(self._level), exp(rise.level), rise.since
        same = isfinite(self._unigram.now)
        return Finding(
            severity="warning",
            action=f"has lost a part of what it had learnt: the loss went from {level:.4g} to {now:.4g} at step "
            f"{since} and stays there. Go back to a checkpoint before step {since}, unless it falls again within "
            "some 50 points",
            cause="Updates were too large for where the run was; the data are what they were.",
            remedies=(
                f"Roll back to a checkpoint before step {since}, and go on at a third of the learning rate.",
                "Clip gradients at 1, or lower Adam's beta2 to .95.",
                f"Look at the batches of step {since} and the few before it.",
            ),
            evidence=self._evidence(rise, 0.0),
            ruled_out=("other data (the baseline losses have not moved)",) if same else (),
            since=since,
        )

    def _repeated(self, severity: Severity) -> Finding:
        since, count = self._repeats.since, self._repeats.count
        return Finding(
            severity=severity,
            action=f"is trained on one batch again and again since step {since}. Stop it and mend the data loader; "
            f"{count} steps are lost, and so is every further one",
            cause="The unigram loss of the targets hardly changes from step to step, as that of one batch does.",
            remedies=(
                "Look at the sampler and at the iterator: made anew each step, or a generator that was used up.",
                f"Go back to a checkpoint before step {since}: the batch is being learnt by heart.",
            ),
            evidence={"unigram_loss": self._unigram.now, "loss": exp(self._level), "data_fault": 1.0},
            since=since,
        )

    def _ordinary_updates(self) -> tuple[str, ...]:
        if not self._updates.ordinary(self._step):
            return ()
        read = {"KL": self._updates.kl, "trust ratio": self._updates.trust}
        known = ", ".join(f"{name} {value:.2g}" for name, value in read.items() if isfinite(value))
        return (f"an update that was too large ({known})",)

    def _evidence(self, rise: Rise, data_fault: float) -> dict[str, float]:
        updates = self._updates
        values = {
            "loss": exp(self._level),
            "expected_loss": exp(rise.level),
            "unigram_loss": self._unigram.now,
            "unigram_loss_before": self._unigram.before,
            "bigram_loss": self._bigram.now,
            "bigram_loss_before": self._bigram.before,
            "output_change_kl": updates.kl,
            "trust_ratio": updates.trust,
            "update_norm_over_usual": updates.length,
            "data_fault": data_fault,
        }
        return {name: value for name, value in values.items() if isfinite(value)}
