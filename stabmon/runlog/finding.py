"""Which run log a person means."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from stabmon.runlog.encoding import SUFFIX, in_folder

DEFAULT_FOLDER = Path("stabmon-runs")
"""Where a plain loop writes."""
_LISTED = 5
"""A message lists so many runs."""


def located(what: Path, run: str | None = None, default: Path = DEFAULT_FOLDER) -> Path:
    """A file as it is; of a folder the run of that name, or its newest; what is neither, as a run's name in `default`.

    FileNotFoundError: there is none; it says which there are.
    """
    if what.is_dir():
        return _of(what, run)
    if what.exists() or what.suffix == SUFFIX:
        return what
    named = _named(in_folder(default), str(what)) if run is None else []
    if len(named) == 1:
        return named[0]
    there = f" in {default}" if default.is_dir() else ""
    raise FileNotFoundError(f"there is no file, folder or run {what}{there}; give a run log (*{SUFFIX}) or its folder")


def _of(folder: Path, run: str | None) -> Path:
    found = in_folder(folder)
    if not found:
        raise FileNotFoundError(f"folder {folder} has no run log (*{SUFFIX}); give the one that a training writes to")
    if run is None:
        return next(iter(found.values()))
    named = _named(found, run)
    if len(named) == 1:
        return named[0]
    names = ", ".join(list(found)[:_LISTED]) + (", …" if len(found) > _LISTED else "")
    raise FileNotFoundError(f"folder {folder} has {'several runs' if named else 'no run'} {run!r}; there are: {names}")


def _named(found: Mapping[str, Path], run: str) -> list[Path]:
    """With its folder or without."""
    return [found[run]] if run in found else [path for path in found.values() if path.stem == run]
