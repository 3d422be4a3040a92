"""Exact 95 % intervals of rates, by bisection of the tails: numpy and the standard library have no quantiles."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import exp, lgamma, log, log1p

TAIL = 0.025
PER = 1e5


def binomial(hits: int, of: int) -> tuple[float, float]:
    """Clopper–Pearson: of a share."""
    if of == 0:
        return 0.0, 1.0
    low = _solve(lambda p: 1 - _binomial_below(hits, of, p) < TAIL, 1.0) if hits else 0.0
    high = _solve(lambda p: _binomial_below(hits + 1, of, p) > TAIL, 1.0) if hits < of else 1.0
    return low, high


def poisson(events: int) -> tuple[float, float]:
    """Garwood: of an expected number of events."""
    most = 2.0 * events + 20
    low = _solve(lambda mean: 1 - _poisson_below(events, mean) < TAIL, most) if events else 0.0
    return low, _solve(lambda mean: _poisson_below(events + 1, mean) > TAIL, most)


def _solve(below: Callable[[float], bool], most: float) -> float:
    """Where `below` turns false between 0 and `most`."""
    low, high = 0.0, most
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if below(middle) else (low, middle)
    return (low + high) / 2


def _binomial_below(hits: int, of: int, p: float) -> float:
    """P(fewer than `hits` of `of`), 0 < p < 1."""
    each = (
        lgamma(of + 1) - lgamma(k + 1) - lgamma(of - k + 1) + k * log(p) + (of - k) * log1p(-p) for k in range(hits)
    )
    return sum(exp(term) for term in each)


def _poisson_below(events: int, mean: float) -> float:
    return sum(exp(k * log(mean) - mean - lgamma(k + 1)) for k in range(events))


@dataclass(frozen=True, slots=True)
class Rate:
    """Events among points."""

    events: int
    points: int

    @property
    def per_1e5(self) -> float:
        return PER * self.events / self.points if self.points else float("nan")

    @property
    def interval(self) -> tuple[float, float]:
        low, high = poisson(self.events)
        return (PER * low / self.points, PER * high / self.points) if self.points else (0.0, float("inf"))
