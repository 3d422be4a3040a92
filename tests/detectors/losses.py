"""Made-up losses."""

import numpy as np

from stabmon.detectors.arrays import Floats


def learning(count: int, noise: float = 0.02, seed: int = 0, first: float = 10.0, last: float = 2.0) -> Floats:
    """From `first` to `last` as a power law, with relative Gaussian noise."""
    t = np.arange(1, count + 1)
    curve = last + (first - last) * t**-0.5
    return np.asarray(curve * np.exp(np.random.default_rng(seed).normal(0, noise, count)))


def autocorrelated(noise: Floats, phi: float = 0.5) -> Floats:
    """AR(1)."""
    values = noise.copy()
    for i in range(1, len(values)):
        values[i] += phi * values[i - 1]
    return values
