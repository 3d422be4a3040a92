"""Is this stream still what it was? A test that may look after every value, with a promised time to a false alarm.

Ranks of exchangeable values are uniform whatever the values' law (conformal p-values, Vovk 2021), so each bet below
has mean 1, and the Shiryaev–Roberts sum R of their products has mean t after t values: the average run length to a
false alarm at R >= A is at least A (e-detectors: Shin, Ramdas and Rinaldo 2024).
"""

from __future__ import annotations

from collections import deque

from stabmon.detectors.window import Window

POWERS = (0.05, 0.1, 0.2, 0.4)
"""kappa of the bets kappa p^(kappa - 1); R is the mean of the four sums."""
WINDOW = 256
"""Values that a new one is ranked among: the best bet on one value is about kappa W^(1 - kappa), some 11 to 12."""
LEAST = 64
"""Values before the first bet."""
CLIP = 3.0
CORRELATION = 0.95


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
