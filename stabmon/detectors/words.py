"""Numbers as people say them."""

from __future__ import annotations


def rate(value: float) -> str:
    """A learning rate to one digit: 0.00033 -> 3e-4."""
    return f"{value:.0e}".replace("e-0", "e-").replace("e+00", "")


def slower(value: float, by: int) -> str:
    """That learning rate divided by `by`; in words where it is not known."""
    return f"lr <= {rate(value / by)}" if value > 0 else f"1/{by} of the learning rate"
