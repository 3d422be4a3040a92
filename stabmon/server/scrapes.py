"""Who scrapes: at the end of a run its server stays for them, so that the final state is seen."""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Condition

RECENT_SECONDS = 120.0
"""Whoever has scraped within this long is expected again."""
LONGEST_SECONDS = 35.0
"""Twice Prometheus' usual 15 s, and some."""
HURRIED_SECONDS = 20.0
"""As long as one can wait who is killed half a minute after SIGTERM, as Kubernetes and SLURM do."""
ENOUGH = 2
"""Scrapes after the end: one may be lost."""


class Scrapes:
    """Renders and counts."""

    def __init__(self, metrics: Callable[[], bytes], clock: Callable[[], float] = time.monotonic) -> None:
        self._metrics = metrics
        self._clock = clock
        self._came = Condition()
        self._count = 0
        self._last = float("-inf")

    def __call__(self) -> bytes:
        with self._came:
            self._count += 1
            self._last = self._clock()
            self._came.notify_all()
        return self._metrics()

    def outlast(self, seconds: float | None, scrapes: int = ENOUGH, longest: float | None = None) -> None:
        """Waits that long; None: until so many more have come, 35 s or `longest` at most, and not where nobody
        scrapes."""
        with self._came:
            if seconds is not None:
                self._came.wait_for(lambda: False, seconds)
            elif self._clock() - self._last <= RECENT_SECONDS:
                enough = self._count + scrapes
                self._came.wait_for(lambda: self._count >= enough, longest or LONGEST_SECONDS)
