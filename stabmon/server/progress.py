"""When a run will end, as things go."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stabmon.runlog.tail import Chunk

_NEWEST = 10
"""Stretches of the course, a third of it, whose median is the pace: evaluations count, a stop does not."""


def pace(course: Sequence[Chunk]) -> float | None:
    """Seconds a step of late, from rows that lie evenly over the run; None where it is not known."""
    if not course:
        return None
    steps, times = (np.concatenate(parts) for parts in zip(*((c.steps, c.times) for c in course), strict=True))
    walked, took = np.diff(steps), np.diff(times)
    known = (walked > 0) & (took > 0)
    found = (took[known] / walked[known])[-_NEWEST:]
    return float(np.median(found)) if found.size else None


def left(seconds: float) -> str:
    """ "some 3 h 20 min left": no more exact than it can be."""
    minutes = seconds / 60
    if minutes < 1.5:
        return "about a minute left"
    if minutes < 55:
        return f"some {round(minutes) if minutes < 10 else 5 * round(minutes / 5)} min left"
    hours, tens = divmod(round(minutes / 10), 6)
    if hours < 10:
        return f"some {hours} h{f' {tens}0 min' if tens else ''} left"
    return f"some {round(minutes / 60)} h left" if minutes < 48 * 60 else f"some {round(minutes / 1440)} d left"
