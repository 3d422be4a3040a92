"""The loss jumps above its own trend."""

from __future__ import annotations

from collections import deque
from math import exp, isfinite, log, nan

from stabmon.catalog import Array
from stabmon.detectors.level import log_loss, of_the_model
from stabmon.detectors.spike_readings import Quick, Slow
from stabmon.detectors.thresholds import loss as thresholds
from stabmon.records import BATCH_SIZE, RESUME, Event, Finding, Snapshot


class _Open:
    """A spike that is not over: the level it left, the rise at which it is told, and its highest point."""

    def __init__(self, since: int, level: float, size: float, top: float) -> None:
        self.since = since
        self.level = level
        self.size = size
        self.top = top
        self.points = 1

    def lasts(self, z: float) -> bool:
        self.points += 1
        self.top = max(self.top, z)
        return z - self.level > self.size / 2 and self.points <= thresholds.SPIKE_POINTS


class Spike:
    """Warns where the loss is above its trend by more than its noise explains: slowly (Shiryaev–Roberts over
    whitened ranks, one false alarm in 1e5 points at most, and large enough to matter) or at once (two of three points).

    Score: the weaker of evidence and size, in units of what alerts. Nothing is learnt from a spike while it lasts;
    after 64 points it is the new level. 64 points after a known change (learning rate, batch size, resume) are learnt
    from and not judged.
    """

    name = "spike"
    needs: tuple[str, ...] = ("loss", "learning_rate")

    def __init__(self) -> None:
        self._rate = nan
        self._start()

    def _start(self) -> None:
        self._step = -1
        self._steps: deque[int] = deque(maxlen=thresholds.SPIKE_LAST)
        self._muted = 0
        self._score = 0.0
        self._open: _Open | None = None
        self._learn_afresh()

    def _learn_afresh(self) -> None:
        self._slow, self._quick = Slow(), Quick()

    def notice(self, event: Event) -> None:
        """After a resume, or with another batch size, another level or noise is no news."""
        if event.kind in (RESUME, BATCH_SIZE):
            self._change()

    def score(self, snapshot: Snapshot) -> Array:
        """float32[1]."""
        z = log_loss(snapshot)
        if isfinite(z):
            if snapshot.step < self._step:
                self._start()  # a restart: another run begins in the same log
            self._step = snapshot.step
            self._steps.append(self._step)
            self._read_rate(snapshot.scalar("learning_rate"))
            self._score = self._judge_open(self._open, z) if self._open else self._judge(z)
        return of_the_model(self._score, snapshot)

    def explain(self, site: int) -> Finding:
        """From which level, and how high."""
        spike = self._open
        assert spike is not None, "asked without an alert"
        level, top, since = exp(spike.level), exp(spike.top), spike.since
        return Finding(
            severity="warning",
            action=f"has a loss spike: {top:.4g} where {level:.4g} was to be expected, since step {since}. Let it run "
            "for now; if the loss is not back within some 50 points, go back to a checkpoint from before it",
            cause="An update was too large, or the batches changed; most spikes heal by themselves.",
            remedies=(
                f"Look at the batches of step {since} and the few before it.",
                "Clip gradients at 1, or lower Adam's beta2 to .95.",
                "If they come again: cut the learning rate to two thirds.",
            ),
            evidence={"loss": top, "expected_loss": level, "excess": spike.top - spike.level},
            since=since,
        )

    def _read_rate(self, rate: float) -> None:
        if rate > 0:
            if abs(log(rate / self._rate)) > thresholds.CHANGE:
                self._change()
            self._rate = rate

    def _change(self) -> None:
        self._muted = thresholds.CHANGE_POINTS

    def _judge_open(self, spike: _Open, z: float) -> float:
        if spike.lasts(z):
            return max((z - spike.level) / spike.size, 1.0)
        if spike.points > thresholds.SPIKE_POINTS:
            self._learn_afresh()
        self._open = None
        self._slow.forget()
        return 0.0

    def _judge(self, z: float) -> float:
        score = 0.0
        if self._muted:
            self._muted -= 1
        elif self._step >= thresholds.EARLY_STEPS:
            score = self._weigh(z)
        if self._open is None:
            self._slow.push(z)
            self._quick.push(z)
        return score

    def _weigh(self, z: float) -> float:
        slow, quick = self._slow.weigh(self._step, z), self._quick.weigh(z)
        if slow >= 1:
            self._open = _Open(self._steps[0], self._slow.level, self._slow.size, z)
        elif quick >= 1:
            self._open = _Open(self._step, self._slow.level, self._quick.size, z)
        return max(slow, quick, 0.0)
