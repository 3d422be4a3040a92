"""Which run log a person means."""

from __future__ import annotations

from pathlib import Path

from stabmon.runlog.encoding import SUFFIX, in_folder

DEFAULT_FOLDER = Path("stabmon-runs")
"""Where a plain loop writes."""
_NAMED = 5
"""A message lists so many runs."""


def located(what: Path, run: str | None = None, default: Path = DEFAULT_FOLDER) -> Path:
    """A file as it is; of a folder the run of that name, or its newest; what is neither, as a run's name in `default`.

    FileNotFoundError: there is none; it says which there are.
    """
    if what.is_dir():
        return _of(what, run)
    if what.exists() or what.suffix == SUFFIX:
        return what
    if run is None and default.is_dir():
        return _of(default, str(what))
    raise FileNotFoundError(f"there is no file, folder or run {what}; give a run log (*{SUFFIX}) or its folder")


def _of(folder: Path, run: str | None) -> Path:
    found = in_folder(folder)
    if not found:
        raise FileNotFoundError(f"folder {folder} has no run log (*{SUFFIX}); give the one that a training writes to")
    if run is None:
        return next(iter(found.values()))
    if run in found:
        return found[run]
    by_name = [path for path in found.values() if path.stem == run]
    if len(by_name) == 1:
        return by_name[0]
    names = ", ".join(list(found)[:_NAMED]) + (", …" if len(found) > _NAMED else "")
    trouble = "several runs" if by_name else "no run"
    raise FileNotFoundError(f"folder {folder} has {trouble} {run!r}; there are: {names}")
