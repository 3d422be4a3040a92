"""MLflow's file store: the folder of a run, with a file a metric whose lines are `timestamp value step`."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from pathlib import Path

from stabmon.readers.log import log
from stabmon.readers.reading import Asked, Notes, ReadError, Reading
from stabmon.readers.rows import reader, roles

NAME = "MLflow run"
METRIC = log("MLflow metric", r"^(?P<time>\d{13}) (?P<loss>NUMBER) (?P<step>\d+)(?: |$)")

_STEP, _TIME = "step", "timestamp"
_FEW = 200


def is_run(folder: Path) -> bool:
    return (folder / "meta.yaml").is_file() and (folder / "metrics").is_dir()


def run_name(folder: Path) -> str:
    """As the user named it; else its id."""
    tag = folder / "tags" / "mlflow.runName"
    return tag.read_text("utf-8", "replace").strip() if tag.is_file() else folder.name


def readings(folder: Path, asked: Asked, notes: Notes) -> Iterator[Reading | None]:
    """ReadError: no metric looks like a loss."""
    metrics = folder / "metrics"
    found = {path.relative_to(metrics).as_posix(): path for path in sorted(metrics.rglob("*")) if path.is_file()}
    heads = [row for name, path in found.items() for _, row in zip(range(_FEW), _rows(name, path), strict=False)]
    chosen = roles(heads, asked, notes, str(folder))
    if chosen is None:
        raise ReadError(f"{folder} has no metric that looks like a loss; it has {', '.join(found) or 'none'}: name one")
    read = reader(chosen)
    wanted = [name for name in (chosen.loss, chosen.grad_norm, chosen.learning_rate, chosen.eval_loss) if name]
    streams = [_rows(name, found[name]) for name in wanted]
    for row in heapq.merge(*streams, key=lambda row: (int(str(row[_TIME])), int(str(row[_STEP])))):
        if (made := read(row)) is not None:
            yield made


def _rows(name: str, path: Path) -> Iterator[dict[str, object]]:
    """Of the file's whole lines."""
    with path.open(encoding="utf-8", errors="replace") as file:
        for line in file:
            cells = line.split()
            if len(cells) >= 3 and cells[0].isdigit() and cells[2].isdigit() and line.endswith("\n"):
                yield {name: cells[1], _STEP: cells[2], _TIME: cells[0]}
