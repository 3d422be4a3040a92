"""The loss does not fall with time any more: stuck near where it began, or merely flat."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import exp, inf, isfinite, log, sqrt

import numpy as np

from stabmon.catalog import Array
from stabmon.detectors.arrays import Floats, of_the_model
from stabmon.detectors.level import log_loss
from stabmon.detectors.stall_task import Task
from stabmon.detectors.thresholds import loss as thresholds
from stabmon.records import Finding, Severity, Snapshot

MOST_POINTS = 2048
LEAST_POINTS = 5


@dataclass(frozen=True, slots=True)
class Exponent:
    """beta = -d ln L / d ln t, between the medians of the quarter before half time and of the half after it."""

    beta: float
    error: float
    """Standard error, with the noise's autocorrelation counted in."""
    level: float
    """ln of the loss in the second half of the run."""


class Flat:
    """Warning where the loss starts at 6 to 20 nats, is still above 55 % of that after 20 points and 1,000 steps, and
    does not fall that one could tell; info where any loss falls as step^-.02 or slower over 100 points and 1,000 steps,
    and once it falls again. Where the unigram loss is known, the former is critical, and any loss that is no better
    than it a warning; a lower one, weights that had learnt before, and targets that do not depend on each other are an
    info at most. Without it nothing is critical: a plateau that ends looks the same.

    Score: 1 or 0. Looks again when the run is 10 % longer.
    """

    name = "flat"
    needs: tuple[str, ...] = ("loss", "unigram_loss", "bigram_loss", "class_mean_loss", "pretrained")

    def __init__(self) -> None:
        self._start()

    def _start(self) -> None:
        self._steps: list[int] = []
        self._logs: list[float] = []
        self._points = 0
        self._step = -1
        self._every = 1
        self._look_at = thresholds.FLAT_POINTS
        self._looks = 0
        self._verdict: Severity | None = None
        self._since = 0
        self._found = Exponent(0.0, inf, 0.0)
        self._dropping = False
        self._task = Task()

    def score(self, snapshot: Snapshot) -> Array:
        """float32[1]."""
        z = log_loss(snapshot)
        if isfinite(z):
            if snapshot.step < self._step:
                self._start()  # a restart: another run begins in the same log
            self._step = snapshot.step
            self._keep(z)
            self._task.read(snapshot)
            if self._points >= self._look_at:
                self._look_at = int(self._points * thresholds.FLAT_AGAIN) + 1
                self._look()
        return of_the_model(float(self._verdict is not None), snapshot)

    def _keep(self, z: float) -> None:
        """Every point; of a long run every second, fourth, …"""
        if self._points % self._every == 0:
            self._steps.append(self._step)
            self._logs.append(z)
        self._points += 1
        if len(self._steps) > MOST_POINTS:
            self._steps, self._logs = self._steps[::2], self._logs[::2]
            self._every *= 2

    def _look(self) -> None:
        found = _exponent(np.array(self._steps, np.float64), np.array(self._logs), self._step)
        if found is None:
            return
        self._found = found
        flat = abs(found.beta) < thresholds.FLAT_RISE and found.beta + 2 * found.error < thresholds.FLAT_EXPONENT
        falls = found.beta - 2 * found.error > thresholds.DROP_EXPONENT
        self._looks = self._looks + 1 if flat else 0
        self._dropping = falls and self._verdict is not None and not self._dropping
        if self._dropping:
            self._verdict = "info"
        elif self._looks >= 2:
            self._verdict = self._severity(found)
        elif falls or found.beta < -thresholds.FLAT_RISE:
            self._verdict = None
        if self._looks == 2:
            self._since = next(step for step in self._steps if step >= self._step / 4)

    def _severity(self, found: Exponent) -> Severity | None:
        if self._step < thresholds.FLAT_STEPS:
            return None
        from_the_start = self._steps[0] <= 2 * (self._steps[1] - self._steps[0])
        if from_the_start and not self._task.quiet:
            stuck, known = self._is_stuck(found), isfinite(self._task.excess)
            if stuck or known:
                return "critical" if stuck and known else "warning"
        return "info" if self._points >= thresholds.SITS_POINTS else None

    def _is_stuck(self, found: Exponent) -> bool:
        """Whether it hardly left its first loss, and does not fall."""
        first = self._logs[0]
        low, high = thresholds.FLAT_FIRST
        near = low <= exp(first) < high and found.level > first + log(thresholds.FLAT_LEVEL)
        return near and found.beta - 2 * found.error < thresholds.FLAT_SLOWEST

    def explain(self, site: int) -> Finding:
        """Where it sits, and since when."""
        assert self._verdict is not None, "asked without an alert"
        level, first, beta, since = exp(self._found.level), exp(self._logs[0]), self._found.beta, self._since
        evidence = {
            "loss_level": level,
            "first_loss": first,
            "loss_exponent": beta,
            "standard_error": self._found.error,
            **({"loss_above_unigram": self._task.excess} if isfinite(self._task.excess) else {}),
        }
        if self._dropping:
            action = f"has left its plateau: the loss falls again, as step^{-beta:.2f}. Let it run"
            return Finding("info", action, "It was flat before.", _NOTHING, evidence, since)
        sits = f"the loss sits at {level:.4g} since about step {since} and {_pace(beta)}"
        if self._verdict == "info":
            return Finding("info", f"is flat: {sits}. {self._compared}", self._which, _COMPARE, evidence, since)
        if self._above_guessing:
            action = (
                f"is worse than a guess: {sits}; no vocabulary makes a guess as bad. Cut the learning rate to a third"
            )
            return Finding("warning", action, _TOO_SURE, _CUT, evidence, since)
        return self._stuck(self._verdict, sits, f"{level / first:.0%} of where it began", evidence)

    def _stuck(self, severity: Severity, sits: str, share: str, evidence: Mapping[str, float]) -> Finding:
        if isfinite(self._task.excess):
            where, what = "what the token frequencies alone score", f"Stop it and restart {_SLOWER}"
            lost, cause = "every further step is lost", "It has learnt how common each answer is, and nothing else."
        else:
            where, what, lost, cause = share, f"Restart it {_SLOWER}", "unless such a plateau is known to end", _NEAR
        return Finding(
            severity=severity,
            action=f"is not learning: {sits}, {where}. {what}; {lost}",
            cause=cause,
            remedies=_RESTART,
            evidence=evidence,
            ruled_out=self._ruled_out,
            since=self._since,
        )

    @property
    def _above_guessing(self) -> bool:
        """Where targets are unknown: whether it began higher than any even guess."""
        return exp(self._logs[0]) >= thresholds.FLAT_GUESS and not isfinite(self._task.excess)

    @property
    def _ruled_out(self) -> tuple[str, ...]:
        """Where targets are known."""
        converged = (f"converged (the loss is {-self._task.excess:.2f} nats better than token frequencies)",)
        worth = (f"nothing to learn (the left neighbour is worth {self._task.gap:.2f} nats)",)
        return (*(converged if isfinite(self._task.excess) else ()), *(worth if isfinite(self._task.gap) else ()))

    @property
    def _compared(self) -> str:
        if self._task.learns:
            better = f"{-self._task.excess:.2f} nats better than the token frequencies alone"
            return f"It is {better}; stop it if that is enough"
        if self._task.pointless:
            return "The left neighbour is worth nothing either: look whether there is anything to learn"
        return "Compare it with the base rate, what a model that ignores its input would score"

    @property
    def _which(self) -> str:
        if self._task.learns:
            return "It has converged, or goes on very slowly."
        return "It has converged, or it is stuck; the loss alone cannot tell."


def _pace(beta: float) -> str:
    """How the loss falls, in words where it is not by a hundredth."""
    return f"falls as step^-{beta:.2f}" if beta >= 0.005 else "does not fall"


_SLOWER = "with a third of the learning rate or a longer warm-up"
_NEAR = (
    "A loss that begins at ln(classes) or ln(vocabulary) and stays near it has learnt how common each answer is, and "
    "nothing else."
)
_RESTART = (
    "Restart with a third of the learning rate, or with a longer warm-up.",
    "Check that inputs and targets belong together, and that gradients reach the lowest layer.",
    "Train with stabmon in the loop: it tells a collapse inside the network from a plateau that ends.",
)
_NOTHING = ("Let it run.",)
_TOO_SURE = (
    "A cross entropy above ln(classes) is that of a model which is sure of wrong answers: updates are too large. "
    "Or it is a loss of another kind, as a sum over a sequence."
)
_CUT = (
    "Cut the learning rate to a third, and again until the loss falls; it may go on from where it is.",
    "Of a sum, or of no cross entropy: compare it with what a constant answer would score.",
    "Train with stabmon in the loop: it knows what a guess scores.",
)
_COMPARE = (
    "If the loss is at the base rate (the entropy of the targets), it is stuck: see the remedies of a stall.",
    "If it is well below, it has converged: stop it, or lower the learning rate.",
)


def _exponent(steps: Floats, logs: Floats, now: int) -> Exponent | None:
    """None where either part has fewer than five points."""
    late = steps > now / 2
    early = (steps > now / 4) & ~late
    if early.sum() < LEAST_POINTS or late.sum() < LEAST_POINTS:
        return None
    first, second = logs[early], logs[late]
    span = log(_median(steps[late]) / _median(steps[early]))
    level = _median(second)
    error = sqrt(_variance(first) + _variance(second)) / span
    return Exponent((_median(first) - level) / span, error, level)


def _median(values: Floats) -> float:
    """Of finite numbers; numpy's takes several times as long."""
    ordered, count = np.sort(values), len(values)
    return float((ordered[(count - 1) // 2] + ordered[count // 2]) / 2)


def _variance(values: Floats) -> float:
    """Of the median of autocorrelated Gaussian values: pi/2 sigma^2 (1 + phi)/(1 - phi) / n, sigma from the MAD."""
    off = values - _median(values)
    sigma = 1.4826 * _median(np.abs(off))
    off = np.clip(off, -3 * sigma, 3 * sigma)
    square = float(off[:-1] @ off[:-1])
    phi = min(max(float(off[1:] @ off[:-1]) / square, 0.0), 0.95) if square > 0 else 0.0
    return np.pi / 2 * sigma**2 * (1 + phi) / (1 - phi) / len(values)
