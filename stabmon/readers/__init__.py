"""Readers turn what other tools recorded into snapshots: a file per format, found by content."""

from stabmon.readers.reading import NoRun, Notes, ReadError
from stabmon.readers.recording import Recording, opened
from stabmon.readers.search import found
from stabmon.readers.several import every_run

__all__ = ["NoRun", "Notes", "ReadError", "Recording", "every_run", "found", "opened"]
