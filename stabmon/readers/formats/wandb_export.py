"""A chart's CSV of Weights & Biases: `<run> - <metric>` for each run, with its lowest and highest value beside it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from stabmon.readers import names, table
from stabmon.readers.format import Format, Head
from stabmon.readers.reading import Asked, ReadError, Reading
from stabmon.readers.rows import Roles, Row, counts, reader
from stabmon.readers.source import Source

_EXTREMES = ("__MIN", "__MAX")


def _fits(head: Head, asked: Asked) -> bool:
    columns = table.header(head)[0]
    return len(columns) > 1 and any(column.endswith(_EXTREMES) and " - " in column for column in columns)


def _runs(columns: list[str]) -> dict[str, dict[str, str]]:
    """Run -> metric -> column."""
    found: dict[str, dict[str, str]] = {}
    for column in columns[1:]:
        run, parted, metric = column.rpartition(" - ")
        if parted and not metric.endswith(_EXTREMES):
            found.setdefault(run, {})[metric] = column
    return found


def _readings(source: Source, head: Head, asked: Asked) -> Iterator[Reading | None]:
    columns, delimiter = table.header(head)
    runs = _runs(columns)
    full = {column: run for run, metrics in runs.items() for column in metrics.values()}
    run = asked.run or full.get(asked.loss or "") or next(iter(runs), "")
    if run not in runs:
        raise ReadError(f"{source.name} has no run {run!r}; it has: {', '.join(runs) or 'none'}")
    if asked.every and asked.loss not in full:
        seen = counts(table.head_rows(head))
        chosen = {name: _roles(columns[0], metrics, seen, asked, source.name) for name, metrics in runs.items()}
        tagged = [_tagged(name, found) for name, found in chosen.items()]
        losses = dict.fromkeys(found.loss.rpartition(" - ")[2] for found in chosen.values())
        source.notes.say(
            f"Loss read from {', '.join(map(repr, losses))} of each run, step from {asked.step or columns[0]!r}."
        )
        source.others = tuple(runs)[1:]
        return table.read_rows(source, columns, delimiter, tagged)
    source.others = tuple(other for other in runs if other != run)
    read = _roles(columns[0], runs[run], counts(table.head_rows(head)), asked, source.name)
    source.run = run
    source.notes.say(f"Loss read from {read.loss!r}, step from {read.step!r}.")
    if source.others:
        source.notes.say(f"{len(runs)} runs in this file: {', '.join(runs)}.")
    return table.read_rows(source, columns, delimiter, [reader(read)])


def _tagged(run: str, chosen: Roles) -> Callable[[Row], Reading | None]:
    """Readings of a run with its name."""
    read = reader(chosen)

    def tagged(row: Row) -> Reading | None:
        if (made := read(row)) is not None:
            made.run = run
        return made

    return tagged


def _roles(step: str, metrics: dict[str, str], seen: dict[str, int], asked: Asked, name: str) -> Roles:
    of_metrics = {metric: seen.get(column, 0) for metric, column in metrics.items()}
    first = {role: next(iter(names.best(role, of_metrics)), "") for role in ("grad_norm", "learning_rate", "eval_loss")}
    losses = names.best("loss", of_metrics) or names.best("eval_loss", of_metrics) or list(metrics)[:1]
    loss = asked.loss or losses[0]
    loss = metrics.get(loss, loss)
    if loss not in metrics.values():
        raise ReadError(f"{name} has no {loss!r} for this run; name one with --loss: {', '.join(metrics)}")
    columns: dict[str, Any] = {role: metrics.get(metric, "") for role, metric in first.items()}
    if columns["eval_loss"] == loss:
        columns["eval_loss"] = ""
    return Roles(loss, asked.step or step, **columns)


WANDB_EXPORT = Format("Weights & Biases CSV export", _fits, _readings)
