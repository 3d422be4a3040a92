"""What a run is called, and with it its run log."""

from __future__ import annotations

import os
import re
import secrets
import time
from pathlib import Path

from stabmon.runlog.encoding import newest, path_of

_MAX_BYTES = 200
"""Of a run's name: with a number and `.stabmon-journal` behind it, it is a file's."""


def name_of(folder: Path, given: str | None, start_step: int) -> tuple[str, bool]:
    """The run's name, and whether its run log is there and gone on with.

    A run that starts at step 0 never takes a name whose log is there: `demo`, `demo-2`, `demo-3`, … One that starts
    later is the given one's continuation, or without a name that of the folder's latest.
    """
    known = given or next((os.environ[v] for v in ("WANDB_RUN_ID", "SLURM_JOB_ID") if os.environ.get(v)), None)
    known = known if given else _as_name(known)
    if known and len(known.encode()) > _MAX_BYTES:
        size = len(known.encode())
        raise ValueError(f"run={known!r}: has {size} bytes; give the run a shorter name, of {_MAX_BYTES} at most")
    if start_step:
        log = path_of(folder, known) if known else newest(folder)
        if log is not None and log.exists():
            return log.stem, True
    name = free = known or f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(2)}"
    number = 1
    while path_of(folder, free).exists():
        number += 1
        free = f"{name}-{number}"
    return free, False


def _as_name(known: str | None) -> str | None:
    """A tracker's id as a name of a file inside the folder."""
    return re.sub(r"[/\\\x00-\x1f]", "-", known).lstrip(".")[:_MAX_BYTES] if known else None
