"""What others alarm on, with their defaults: an independent yardstick on the same points."""

from __future__ import annotations

from collections import deque
from math import inf, isfinite, nan, sqrt
from typing import Literal, Protocol

QUIET_POINTS = 10
"""Points without an alarm before a rule's incident is over: as `Alarm` has it for the detectors."""


class Rule(Protocol):
    """Sees each point once."""

    def alarms(self, loss: float, grad_norm: float, rms_t: float = nan) -> bool:
        """Whether it would speak at this point. NaN: not known."""
        ...


class Incidents:
    """A rule's alarms, those of one incident as one."""

    def __init__(self, rule: Rule) -> None:
        self.began: list[int] = []
        """Points at which it began to speak."""
        self.points: list[int] = []
        """Those at which it spoke."""
        self._rule = rule

    def see(self, point: int, loss: float, grad_norm: float, rms_t: float = nan) -> None:
        """Points in their order."""
        if not self._rule.alarms(loss, grad_norm, rms_t):
            return
        if not self.points or point - self.points[-1] > QUIET_POINTS:
            self.began.append(point)
        self.points.append(point)


class Patience:
    """No better loss for 100 points (early stopping)."""

    def __init__(self) -> None:
        self._best, self._waited = inf, 0

    def alarms(self, loss: float, grad_norm: float, rms_t: float = nan) -> bool:
        self._waited = 0 if loss < self._best else self._waited + 1
        self._best = min(self._best, loss)
        return self._waited >= 100


class _Moments:
    """Mean and standard deviation of the last 128 finite values."""

    SIZE = 128

    def __init__(self) -> None:
        self._values: deque[float] = deque()
        self._pushed = 0
        self._sum = self._square = 0.0

    def push(self, value: float) -> None:
        self._values.append(value)
        self._sum += value
        self._square += value * value
        if len(self._values) > self.SIZE:
            old = self._values.popleft()
            self._sum -= old
            self._square -= old * old
        self._pushed += 1
        if self._pushed % self.SIZE == 0:  # what rounding left of values that are gone
            self._sum, self._square = sum(self._values), sum(v * v for v in self._values)

    def known(self) -> tuple[float, float] | None:
        if len(self._values) < self.SIZE:
            return None
        mean = self._sum / self.SIZE
        return mean, sqrt(max(self._square / self.SIZE - mean * mean, 0.0))


class SixSigma:
    """Loss, or gradient norm, above the mean of its last 128 by 6 standard deviations (OLMo-core watches both)."""

    def __init__(self, of: Literal["loss", "grad_norm"] = "loss") -> None:
        self._of = of
        self._moments = _Moments()

    def alarms(self, loss: float, grad_norm: float, rms_t: float = nan) -> bool:
        value = loss if self._of == "loss" else grad_norm
        known = self._moments.known()
        if isfinite(value):
            self._moments.push(value)
        return known is not None and value > known[0] + 6 * known[1]


class ZClip:
    """z > 2.5 of the gradient norm (of the loss where there is none) against moving moments of .97, after 25 points;
    what is above is learnt from as if clipped.
    """

    def __init__(self) -> None:
        self._first: list[float] = []
        self._mean, self._variance = nan, nan

    def alarms(self, loss: float, grad_norm: float, rms_t: float = nan) -> bool:
        value = loss if grad_norm != grad_norm else grad_norm
        if not isfinite(value):
            return False
        if len(self._first) < 25:
            self._first.append(value)
            self._mean = sum(self._first) / len(self._first)
            self._variance = sum((v - self._mean) ** 2 for v in self._first) / len(self._first)
            return False
        deviation = sqrt(self._variance)
        z = (value - self._mean) / (deviation + 1e-6)
        if z > 2.5:
            value = self._mean + 2.5 * deviation / (z / 2.5)
        self._mean = 0.97 * self._mean + 0.03 * value
        self._variance = 0.97 * self._variance + 0.03 * (value - self._mean) ** 2
        return z > 2.5


class LossNotDecreasing:
    """No lower than ten points ago (SageMaker Debugger)."""

    def __init__(self) -> None:
        self._last: deque[float] = deque(maxlen=10)

    def alarms(self, loss: float, grad_norm: float, rms_t: float = nan) -> bool:
        before = self._last[0] if len(self._last) == 10 else inf
        self._last.append(loss)
        return loss >= before


class RmsT:
    """RMS_t of some block at 2.3 or above (Wortsman et al. 2023, StableAdamW)."""

    def alarms(self, loss: float, grad_norm: float, rms_t: float = nan) -> bool:
        return rms_t >= 2.3


class Cusum:
    """Upward, on values in standard deviations from the mean of the last 128, with slack .5."""

    def __init__(self, limit: float) -> None:
        self._limit = limit
        self._moments, self._sum = _Moments(), 0.0

    def alarms(self, loss: float, grad_norm: float, rms_t: float = nan) -> bool:
        known = self._moments.known()
        if not isfinite(loss):
            return False
        self._moments.push(loss)
        if known is None or known[1] == 0:
            return False
        self._sum = max(self._sum + (loss - known[0]) / known[1] - 0.5, 0.0)
        above = self._sum > self._limit
        self._sum = 0.0 if above else self._sum
        return above
