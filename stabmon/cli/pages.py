"""Pages that commands write: the whole one or none, and never over what is not theirs."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from stabmon.cli.runs import STANDARD_INPUT, is_stream

_PAGE, _RUN_LOG = b"<title>stabmon</title>", b"SQLite format 3\0"
_HEAD = 4096


def check_out(out: Path, paths: Sequence[Path]) -> None:
    """Before anything is read. ValueError: it cannot be written there, or would be written over a run."""
    if out == STANDARD_INPUT or out.is_dir():
        example = Path("run.html") if out == STANDARD_INPUT else out / "run.html"
        raise ValueError(f"{out} is no file that can be written; name one, such as {example}")
    if not out.exists() and not out.resolve().parent.is_dir():
        raise ValueError(f"the folder of {out} is not there; make it first, or name another file")
    if any(out.exists() and path.exists() and out.samefile(path) for path in paths):
        raise ValueError(f"{out} is the run itself and would be lost; name another file to write to")
    if _head(out).startswith(_RUN_LOG):
        raise ValueError(f"{out} is a run log and would be lost; name another file to write to")


def check_unnamed(out: Path) -> None:
    """ValueError: a file of that name, which nobody asked to write, is no page of ours."""
    if out.exists() and _PAGE not in _head(out):
        raise ValueError(f"{out} is there and is no report of stabmon; name the file to write with --out")


def check_readable_again(paths: Sequence[Path]) -> None:
    """ValueError: the page is made in a second reading."""
    if any(is_stream(path) for path in paths):
        raise ValueError("--html reads the file a second time, which a pipe does not allow; give a file")


def write(out: Path, text: str) -> int:
    """Bytes written. What is there is replaced once all of it is on the disk. OSError: nothing was changed."""
    data = text.encode()
    if is_stream(out):  # /dev/stdout, a pipe: there is nothing to replace
        out.write_bytes(data)
        return len(data)
    whole = out.resolve()  # through a link, which stays
    part = whole.with_name(f".stabmon-{os.getpid()}.part")
    try:
        part.write_bytes(data)
        if whole.exists():
            part.chmod(whole.stat().st_mode)
        part.replace(whole)
    except OSError as error:
        raise OSError(error.errno, f"not written: {error.strerror}", str(out)) from None
    finally:
        part.unlink(missing_ok=True)
    return len(data)


def _head(path: Path) -> bytes:
    if not path.is_file():
        return b""
    with path.open("rb") as file:
        return file.read(_HEAD)
