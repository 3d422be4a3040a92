"""What the findings of many detectors share: numbers as people say them, and what is known among what is asked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import inf, isfinite

import numpy as np


def rate(value: float) -> str:
    """A learning rate to one digit: 0.00033 -> 3e-4."""
    return f"{value:.0e}".replace("e-0", "e-").replace("e+00", "")


def slower(value: float, by: int) -> str:
    """That learning rate divided by `by`; in words where it is not known."""
    return f"lr <= {rate(value / by)}" if 0 < value < inf else f"1/{by} of the learning rate"


def checkpoint_before(step: int) -> str:
    """Given the last step at which a forward pass was well: its own update may be the one that did the harm."""
    return f"a checkpoint before step {step}" if step > 1 else "the weights that it began with"


def steps_lost(steps: int) -> str:
    """Where nothing that comes after them is worth anything either."""
    return f"{'1 step is' if steps == 1 else f'{steps:,} steps are'} lost, and so is every further one"


def whole(value: float) -> str:
    """A large number: 2290 -> 2,290; from a million on as 3.2e8."""
    return f"{value:,.0f}" if abs(value) < 1e6 else f"{value:.1e}".replace("e+0", "e").replace("e+", "e")


def bfloat16_step(value: float) -> float:
    """How far apart numbers of that size are in bfloat16: 2 from 256 on."""
    return float(2.0 ** (np.floor(np.log2(value)) - 7))


def known(values: Mapping[str, float]) -> dict[str, float]:
    """Evidence: the numbers that were read and are finite."""
    return {name: float(value) for name, value in values.items() if isfinite(value)}


def that_hold(said: Iterable[tuple[bool, str]]) -> tuple[str, ...]:
    """What was ruled out: the phrases whose reading holds, in their order."""
    return tuple(phrase for holds, phrase in said if holds)
