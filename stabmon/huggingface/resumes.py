"""The run log of a run that goes on in another output folder, which is where its checkpoint was written."""

from __future__ import annotations

import logging
import os
import sqlite3
from contextlib import closing
from pathlib import Path

from stabmon.runlog import path_of
from stabmon.runlog.reader import reading

FOLDER = "stabmon"
"""In the output folder."""
_log = logging.getLogger("stabmon")


def bring_along(folder: Path, run: str, checkpoint: Path | None) -> None:
    """Copy it into `folder`, where it isn't there and can be found; what it was copied from stays as it is."""
    log = path_of(folder, run)
    if checkpoint is None or log.exists():
        return
    outputs = checkpoint.absolute().parents  # a trial's checkpoints are one folder further down
    found = next((there for up in outputs[:2] if (there := path_of(up / FOLDER, run)).exists()), None)
    if found is None:
        return
    part = log.with_name(f".{log.name}.part")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with reading(found) as source, closing(sqlite3.connect(part)) as target:
            source.backup(target)
        os.replace(part, log)
        _log.info("stabmon: the run goes on with a copy of its run log, %s", found)
    except Exception as error:  # it then goes on as a run whose beginning is not known
        part.unlink(missing_ok=True)
        _log.warning("stabmon: run log %s of the run that goes on could not be copied: %s", found, error)
