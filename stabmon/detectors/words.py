"""Numbers as people say them."""

from __future__ import annotations

from math import inf


def rate(value: float) -> str:
    """A learning rate to one digit: 0.00033 -> 3e-4."""
    return f"{value:.0e}".replace("e-0", "e-").replace("e+00", "")


def slower(value: float, by: int) -> str:
    """That learning rate divided by `by`; in words where it is not known."""
    return f"lr <= {rate(value / by)}" if 0 < value < inf else f"1/{by} of the learning rate"


def whole(value: float) -> str:
    """A large number to a person: 2290 -> 2,290; 3.2e8 from a million on."""
    return f"{value:,.0f}" if abs(value) < 1e6 else f"{value:.1e}".replace("e+0", "e").replace("e+", "e")
