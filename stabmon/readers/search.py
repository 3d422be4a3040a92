"""Files that can be read, among files, folders and patterns that a user gave."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from glob import glob, has_magic
from pathlib import Path

from stabmon.readers import table
from stabmon.readers.format import Head
from stabmon.readers.formats import FORMATS, json_values, mlflow, run_log, tensorboard, tensorboard_csv
from stabmon.readers.reading import Asked, Notes, ReadError
from stabmon.readers.recognised import READABLE, is_binary
from stabmon.readers.source import Source

MOST_FILES = 20_000
_LOOKED_AT = 1 << 20
"""Of each file of a folder; a log that begins later must be named itself."""
_NEVER = {".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".onnx", ".npy", ".npz", ".png", ".jpg", ".svg", ".pdf"}
_NEVER |= {".py", ".pyc", ".so", ".parquet", ".arrow", ".zip", ".whl", ".html", ".js", ".css", ".md", ".yaml", ".yml"}
_SKIPPED = {"node_modules", "__pycache__", ".git", ".venv", "site-packages"}
_STATE = "trainer_state.json"


def found(paths: Sequence[str], notes: Notes | None = None) -> list[Path]:
    """Files and folders that are runs. A file that was named is told as it is, readable or not; folders are searched,
    by content. "-" stays. What was left out of a folder though it speaks of losses is said to `notes`.

    ReadError: there is nothing at a path, or nothing in a folder that can be read.
    """
    made: list[Path] = []
    said = Notes() if notes is None else notes
    for given in paths:
        made += [path for path in _found(given, said) if path not in made]
    return made


def _found(given: str, notes: Notes) -> list[Path]:
    path = Path(given).expanduser()
    if given == "-":
        return [Path("-")]
    if not os.path.lexists(path) and has_magic(given):
        matches = sorted(glob(str(path), recursive=True))
        if not matches:
            raise ReadError(f"nothing matches {given}; put quotes around it only where the shell should not expand it")
        searched = (_in_folder(Path(one), notes) if Path(one).is_dir() else [Path(one)] for one in matches)
        if not (made := [path for paths in searched for path in paths]):
            raise ReadError(f"{given} matches {len(matches)} folders without a run; they may hold {READABLE}")
        return made
    if not path.exists():
        raise ReadError(f"{given} is not there; give a file, a folder, or - for standard input")
    if not path.is_dir():
        return [path]
    if not os.access(path, os.R_OK | os.X_OK):
        raise ReadError(f"{given} may not be read by you (permission denied)")
    if not (runs := _in_folder(path, notes)):
        raise ReadError(f"{given} is a folder without a run; it may hold {READABLE}")
    return runs


def _in_folder(folder: Path, notes: Notes) -> list[Path]:
    runs: list[Path] = []
    checkpoints: list[Path] = []
    denied: list[str] = []
    for count, path in enumerate(_candidates(folder, notes, denied)):
        if count >= MOST_FILES:
            raise ReadError(f"{folder} has more than {MOST_FILES} files; give a folder nearer to the runs")
        (checkpoints if _of_checkpoint(path) else runs).append(path)
    if denied:
        others = f" and {len(denied) - 1:,} more" if len(denied) > 1 else ""
        notes.say(f"{denied[0]}{others} may not be read by you (permission denied); left out.")
    return sorted(runs + _newest(checkpoints, runs))


def _candidates(folder: Path, notes: Notes, denied: list[str]) -> Iterator[Path]:
    """Links to folders are not followed, so that there are no loops. `denied`: gets names of what may not be read."""
    for here, folders, files in os.walk(folder, onerror=lambda error: denied.append(str(error.filename))):
        at = Path(here)
        if mlflow.is_run(at) or tensorboard.files(at):
            yield at
        if mlflow.is_run(at):
            folders.clear()
            continue
        folders[:] = sorted(name for name in folders if name not in _SKIPPED and not name.startswith("."))
        for name in sorted(files):
            path = at / name
            if not name.startswith(".") and path.suffix.lower() not in _NEVER and _is_run(path, notes, denied):
                yield path


def _is_run(path: Path, notes: Notes, denied: list[str]) -> bool:
    try:
        if not path.is_file() or "tfevents" in path.name or path.name.endswith(("-wal", "-shm")):
            return False
        with path.open("rb") as file:
            if file.read(16) == run_log.MAGIC:
                return path.suffix == ".stabmon"
            file.seek(0)
            source = Source(file, str(path), None, False, Notes())
            while source.look() and len(source.head) < _LOOKED_AT:
                pass
            head = Head(source.head, source.ended)
            if is_binary(head.raw) or not any(form.fits(head, Asked()) for form in FORMATS):
                return False
            if tensorboard_csv.is_of_another(head, path.name) or json_values.is_of_another(head, path.name):
                return False
            if of_runs := table.is_of_runs(head):
                notes.say(f"{path.name} is a table of runs, one a row, and no run; it was left out.")
            return not of_runs
    except PermissionError:
        denied.append(str(path))
        return False
    except (OSError, ValueError, RecursionError):
        return False


def _of_checkpoint(path: Path) -> bool:
    return path.name == _STATE and path.parent.name.startswith("checkpoint-")


def _newest(checkpoints: Sequence[Path], runs: Sequence[Path]) -> list[Path]:
    """Of each training the state that reaches furthest: the others are beginnings of it."""
    best: dict[Path, Path] = {}
    for path in sorted(checkpoints, key=_number):
        best[path.parent.parent] = path
    return [path for training, path in best.items() if training / _STATE not in runs]


def _number(path: Path) -> int:
    tail = path.parent.name.rpartition("-")[2]
    return int(tail) if tail.isdigit() else -1
