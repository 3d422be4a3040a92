"""Which recorded runs a person means."""

from __future__ import annotations

from collections.abc import Sequence
from glob import has_magic
from pathlib import Path

from stabmon.readers import Notes, found
from stabmon.runlog import in_folder
from stabmon.runlog.finding import DEFAULT_FOLDER, located

STANDARD_INPUT = Path("-")
_LISTED = 5
"""A message lists so many runs."""


def runs_of(given: Sequence[str], notes: Notes | None = None) -> list[Path]:
    """Files, folders and patterns, searched by content; else names of runs in ./stabmon-runs. `notes`: what was left
    out.

    ValueError: there is nothing of that name, or nothing in it that can be read.
    """
    return found([_known(each) for each in given], notes)


def only_run(given: Sequence[str], command: str) -> tuple[Path, str]:
    """The one run that a person means, of a folder of run logs its newest; and what is to be said of that.

    ValueError: it is none, or several.
    """
    if len(given) != 1:
        here = f"here are {len(given)}: {listed(given)}" if given else "none is named"
        raise ValueError(
            f"{command} takes one run, {here}; give a file, a folder or a run's name, or several to "
            "`stabmon compare A B --html FILE`, which draws them into one page"
        )
    paths = runs_of(given)
    logs = in_folder(Path(given[0])) if len(paths) > 1 and Path(given[0]).is_dir() else {}
    if logs:
        newest = located(Path(given[0]))
        return newest, f"{given[0]} has {len(logs)} run logs; this is the newest, {newest.stem}."
    if len(paths) > 1:
        raise ValueError(f"{given[0]} has {len(paths)} runs; name one of them: {listed([str(path) for path in paths])}")
    return paths[0], ""


def is_stream(path: Path) -> bool:
    """It can be read once."""
    return path == STANDARD_INPUT or (path.exists() and not path.is_file() and not path.is_dir())


def listed(names: Sequence[str]) -> str:
    """The first of them, in words."""
    return ", ".join(names[:_LISTED]) + (", …" if len(names) > _LISTED else "")


def _known(given: str) -> str:
    if not given:
        raise ValueError(
            "a file's name is empty, as where a variable of the shell is not set; give a file, a folder, or . for all "
            "of this one"
        )
    path = Path(given).expanduser()
    if given == str(STANDARD_INPUT) or has_magic(given) or path.exists():
        return given
    if path.is_symlink():
        raise ValueError(f"{given} is a link that leads nowhere; give the file itself")
    try:
        return str(located(Path(given)))
    except FileNotFoundError:
        names = list(in_folder(DEFAULT_FOLDER)) if DEFAULT_FOLDER.is_dir() else []
        there = f", and no run in {DEFAULT_FOLDER}, which has {listed(names)}" if names else ""
        raise ValueError(f"{given} is not there{there}; give a file, a folder, or - for standard input") from None
