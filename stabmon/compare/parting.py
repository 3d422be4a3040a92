"""Where two losses part."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

Steps = np.ndarray[tuple[int], np.dtype[np.int64]]
Losses = np.ndarray[tuple[int], np.dtype[np.float64]]

_WINDOW = (5, 25)
"""Points of which a median is taken: a hundredth of the run, within these bounds."""
_BEYOND = 5.0
"""Standard errors: two windows in a row that far on one side are not noise, once in a million."""
_LEAST = 0.01
"""Of the loss: less is no difference that matters."""


@dataclass(frozen=True, slots=True)
class Parting:
    """Two losses over the steps that both runs have."""

    common: int
    """Steps compared."""
    first_step: int
    last_step: int
    differ_at: int | None
    """The first step at which they are not the same number; None: they are the same throughout."""
    part_at: int | None
    """The step from which they differ by more than noise explains; None: nowhere."""
    last: tuple[float, float]
    """Medians over the last points."""
    between: bool
    """They were logged at other steps: the second one's losses were read between its own."""


def parting(steps_a: Steps, losses_a: Losses, steps_b: Steps, losses_b: Losses) -> Parting | None:
    """None: no step in common. Where the runs were logged at other steps, the second one is interpolated."""
    (steps, a, b), between = _aligned(steps_a, losses_a, steps_b, losses_b)
    if not len(steps):
        return None
    differ = np.flatnonzero(a != b)
    same = int(differ[0]) if len(differ) else len(steps)
    window = min(max(len(steps) // 100, _WINDOW[0]), _WINDOW[1])
    return Parting(
        common=len(steps),
        first_step=int(steps[0]),
        last_step=int(steps[-1]),
        differ_at=int(steps[differ[0]]) if len(differ) else None,
        part_at=_part_at(steps[same:], a[same:], b[same:], window),
        last=(float(np.median(a[-window:])), float(np.median(b[-window:]))),
        between=between,
    )


def _aligned(
    steps_a: Steps, losses_a: Losses, steps_b: Steps, losses_b: Losses
) -> tuple[tuple[Steps, Losses, Losses], bool]:
    """Steps and both losses there, and whether the second one's were read between its own."""
    steps, places_a, places_b = np.intersect1d(steps_a, steps_b, assume_unique=True, return_indices=True)
    if len(steps) * 2 >= min(len(steps_a), len(steps_b)) or not len(steps_a) or not len(steps_b):
        return (steps, losses_a[places_a], losses_b[places_b]), False
    inside = (steps_a >= steps_b[0]) & (steps_a <= steps_b[-1])
    return (steps_a[inside], losses_a[inside], np.interp(steps_a[inside], steps_b, losses_b)), True


def _part_at(steps: Steps, a: Losses, b: Losses, window: int) -> int | None:
    """The first step of the first two windows in a row whose median difference is beyond its noise, on one side; a
    loss that is not finite where the other is parts them by itself.
    """
    broken = np.flatnonzero(np.isfinite(a) != np.isfinite(b))
    end = int(broken[0]) if len(broken) else len(steps)
    with np.errstate(invalid="ignore"):  # Inf - Inf
        difference = np.where(np.isfinite(a) & np.isfinite(b), b - a, 0.0)[:end]
    count = len(difference) // window
    if count > 1:
        noise = 1.05 * float(np.median(np.abs(np.diff(difference))))
        medians = np.median(difference[: count * window].reshape(count, window), axis=1)
        level = np.median(np.abs(a[: count * window]).reshape(count, window), axis=1)
        limit = np.maximum(_BEYOND * 1.25 * noise / np.sqrt(window), _LEAST * level)
        side = np.where(np.abs(medians) > limit, np.sign(medians), 0)
        found = np.flatnonzero((side[:-1] != 0) & (side[:-1] == side[1:]))
        if len(found):
            return int(steps[found[0] * window])
    return int(steps[end]) if len(broken) else None
