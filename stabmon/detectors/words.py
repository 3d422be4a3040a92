"""Numbers as people say them."""

from __future__ import annotations


def rate(value: float) -> str:
    """A learning rate to one digit: 0.00033 -> 3e-4."""
    return f"{value:.0e}".replace("e-0", "e-").replace("e+00", "")
