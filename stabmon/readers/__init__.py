"""Readers turn what other tools recorded into snapshots: a file per format, found by content."""

from stabmon.readers.reading import ReadError
from stabmon.readers.recording import Recording, opened
from stabmon.readers.search import found

__all__ = ["ReadError", "Recording", "found", "opened"]
