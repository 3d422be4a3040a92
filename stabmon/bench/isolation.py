"""Keeps the machine's settings out of a measurement, and what failed from passing for cheap."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager

_log = logging.getLogger("stabmon")


@contextmanager
def own_settings() -> Iterator[None]:
    """The defaults, whatever the environment says: it may name trackers, a webhook, other intervals."""
    kept = dict(os.environ)
    for name in kept:
        if name.startswith("STABMON_") or name in ("WANDB_RUN_ID", "SLURM_JOB_ID"):
            del os.environ[name]
    try:
        yield
    finally:
        os.environ.update(kept)


@contextmanager
def failures_raised() -> Iterator[None]:
    """RuntimeError at the end if a part failed meanwhile: it was dropped, so its cost was not measured. Alerts and
    addresses of the measured trainings go nowhere."""
    failed = _Failures()
    handlers, propagates, level = _log.handlers, _log.propagate, _log.level
    _log.handlers, _log.propagate = [failed], False
    _log.setLevel(logging.WARNING)
    try:
        yield
    finally:
        _log.handlers, _log.propagate = handlers, propagates
        _log.setLevel(level)
    if failed.first:
        raise RuntimeError(f"a part of stabmon failed while it was measured: {failed.first}")


class _Failures(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.first = ""

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info:
            self.first = self.first or f"{record.getMessage()} ({record.exc_info[1]!r})"
