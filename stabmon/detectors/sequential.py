"""Is this stream still what it was? A test that may look after every value, with a promised time to a false alarm.

Ranks of exchangeable values are uniform whatever the values' law (conformal p-values, Vovk 2021), so each bet below
has mean 1, and the Shiryaev–Roberts sum R of their products has mean t after t values: the average run length to a
false alarm at R >= A is at least A (e-detectors: Shin, Ramdas and Rinaldo 2024).
"""

from __future__ import annotations

from collections import deque

import numpy as np

from stabmon.detectors.arrays import Floats, Indices
from stabmon.detectors.rings import Rings
from stabmon.detectors.window import Window

POWERS = (0.05, 0.1, 0.2, 0.4)
"""kappa of the bets kappa p^(kappa - 1); R is the mean of the four sums."""
WINDOW = 256
"""Values that a new one is ranked among: the best bet on one value is about kappa W^(1 - kappa), some 11 to 12."""
LEAST = 64
"""Values before the first bet."""
CLIP = 3.0
CORRELATION = 0.95
STREAM_WINDOW = 128
"""WINDOW of each of many streams, most of which have a value in every tenth step only."""
RENEWED = 16
"""Values of a stream after which the bound that its values are clipped at is computed again."""
TINY = 1e-300
MOST = 1e12
"""R of a stream is held here: what it would be beyond changes no decision."""


class Whitened:
    """What is new in a value: x_t - phi x_(t-1), with phi the lag-one correlation of the last 256 values (clipped at 3
    standard deviations, and within [0, .95]).
    """

    def __init__(self) -> None:
        self.values = Window(WINDOW)
        self._last = 0.0
        self._clipped = 0.0
        self._terms: deque[tuple[float, float]] = deque()
        self._product = 0.0
        self._square = 0.0

    def residual(self, value: float) -> float:
        return value - self._correlation() * self._last

    def push(self, value: float) -> None:
        bound = CLIP * self.values.spread if len(self.values) >= LEAST else abs(value)
        clipped = min(max(value, -bound), bound)
        self._terms.append((clipped * self._clipped, self._clipped**2))
        self._product += self._terms[-1][0]
        self._square += self._terms[-1][1]
        if len(self._terms) > WINDOW:
            product, square = self._terms.popleft()
            self._product -= product
            self._square -= square
        self._last, self._clipped = value, clipped
        self.values.push(value)

    def _correlation(self) -> float:
        return min(max(self._product / self._square, 0.0), CORRELATION) if self._square > 0 else 0.0


class ShiryaevRoberts:
    """R of "values have become larger": one-sided, from ranks alone."""

    def __init__(self) -> None:
        self.values = Window(WINDOW)
        self._sums = [0.0] * len(POWERS)

    @property
    def evidence(self) -> float:
        """R."""
        return sum(self._sums) / len(POWERS)

    def bet(self, value: float, tie: float) -> None:
        """On a value before it is pushed; `tie`, uniform in (0, 1], is its place among equal ones."""
        if len(self.values) < LEAST:
            return
        greater, equal = self.values.above(value)
        p = (greater + tie * (equal + 1)) / (len(self.values) + 1)
        self._sums = [(1 + r) * k * p ** (k - 1) for r, k in zip(self._sums, POWERS, strict=True)]

    def push(self, value: float) -> None:
        self.values.push(value)

    def forget(self) -> None:
        """The evidence, not the values."""
        self._sums = [0.0] * len(POWERS)


def tie(step: int) -> float:
    """A number in (0, 1] hashed from the step, so that a replay breaks ties as the live run did (splitmix64)."""
    mask = 2**64 - 1
    x = (step + 1) * 0x9E3779B97F4A7C15 & mask
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & mask
    x = (x ^ x >> 27) * 0x94D049BB133111EB & mask
    return ((x ^ x >> 31) + 1) / 2**64


class Streams:
    """Many streams, one alarm: each is ranked among its own last 128 values, whitened by a correlation that fades over
    as many, and the evidence is the mean of their R. That has mean t as well, however the streams depend on each
    other, so the promise holds without a correction for their number (averages of e-detectors are e-detectors: Shin,
    Ramdas and Rinaldo 2024).

    `values` are float64[stream]; NaN leaves that stream as it is.
    """

    def __init__(self, count: int) -> None:
        self._values, self._residuals = Rings(count, STREAM_WINDOW), Rings(count, STREAM_WINDOW)
        self._product, self._square = np.zeros(count), np.zeros(count)
        self._last, self._clipped = np.zeros(count), np.zeros(count)
        self._sums = np.zeros((count, len(POWERS)))
        self.evidence = 0.0
        """R of all."""
        self.spread = np.full(count, np.inf)
        """Standard deviation of each stream's values; Inf before there are 64."""

    @property
    def worst(self) -> int:
        """The stream that has the most evidence."""
        return int(self._sums.sum(axis=1).argmax())

    def bet(self, values: Floats, tie: float) -> None:
        """On values before they are pushed; `tie`, uniform in (0, 1], is their place among equal ones."""
        rows = np.flatnonzero(np.isfinite(values) & (self._residuals.pushed >= LEAST))
        if not rows.size:
            return
        residual = self._residual(rows, values[rows])[:, None]
        past = self._residuals.values[rows]
        greater, equal = (past > residual).sum(axis=1), (past == residual).sum(axis=1)
        p = (greater + tie * (equal + 1)) / (self._residuals.held[rows] + 1)
        powers = np.array(POWERS)
        sums = (1 + self._sums[rows]) * powers * p[:, None] ** (powers - 1)
        self._sums[rows] = np.minimum(sums, MOST)
        self.evidence = float(self._sums.mean())

    def push(self, values: Floats) -> None:
        rows = np.flatnonzero(np.isfinite(values))
        now = values[rows]
        self._residuals.push(rows, self._residual(rows, now))
        bound, before = CLIP * self.spread[rows], self._clipped[rows]
        clipped = np.minimum(np.maximum(now, -bound), bound)
        self._product[rows] += clipped * before - self._product[rows] / STREAM_WINDOW
        self._square[rows] += before * before - self._square[rows] / STREAM_WINDOW
        self._last[rows], self._clipped[rows] = now, clipped
        self._values.push(rows, now)
        due = rows[(self._values.pushed[rows] >= LEAST) & (self._values.pushed[rows] % RENEWED == 0)]
        if due.size:
            self.spread[due] = self._values.spread(due)

    def forget(self) -> None:
        """The evidence, not the values."""
        self._sums[:] = 0.0
        self.evidence = 0.0

    def _residual(self, rows: Indices, values: Floats) -> Floats:
        correlation = self._product[rows] / np.maximum(self._square[rows], TINY)
        held = np.minimum(np.maximum(correlation, 0.0), CORRELATION)
        return np.asarray(values - held * self._last[rows])
