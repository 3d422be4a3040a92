"""`stabmon compare`: what differs between runs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich import box
from rich.table import Table

from stabmon.cli.edge import AsJson, for_users
from stabmon.cli.options import Files, Html, Loss, Runs, Step
from stabmon.cli.pages import check_out, check_readable_again, write
from stabmon.cli.runs import STANDARD_INPUT, runs_of
from stabmon.cli.verdicts import SCHEMA, UNREADABLE, as_object, console, number, printed
from stabmon.records import figure

if TYPE_CHECKING:
    from rich.console import Console

    from stabmon.compare import Difference
    from stabmon.replays import Incident

_SHOWN = 12
"""Statistics that the table shows; the JSON has all."""


def compare(
    files: Files = None,
    of: Runs = None,
    loss: Loss = None,
    step: Step = None,
    as_json: AsJson = False,
    html: Html = None,
) -> None:
    """Runs beside the first one, aligned by step: settings that differ, where the losses part, alerts that one of them
    alone has, statistics by how far they differ. Of a file that holds several runs each is one.

    Exit code: 0, or 3 where a file cannot be read.
    """
    with for_users(UNREADABLE):
        from stabmon.compare import compare as compared

        paths = _given(files or [])
        if html:
            check_readable_again(paths)
            check_out(html, paths)
        differences = compared(paths, loss=loss, step=step, runs=of or ())
        if not differences:
            raise ValueError(_one(paths, files or [], of or ()))
    screen = console(stderr=as_json)
    for difference in differences:
        _show(difference, screen)
    if as_json:
        printed(json.dumps({"version": SCHEMA, "differences": [_object(each) for each in differences]}))
    if html:
        with for_users(UNREADABLE):
            from stabmon.report import report

            drawn, names = _drawn(differences)
            write(html, report(drawn, loss=loss, step=step, run=names))


def _given(files: Sequence[str]) -> list[Path]:
    paths = runs_of(files)
    if STANDARD_INPUT in paths:
        raise ValueError("compare reads files, not standard input; write it to one first")
    if not paths:
        raise ValueError(_one((), (), ()))
    return paths


def _one(paths: Sequence[Path], files: Sequence[str], of: Sequence[str]) -> str:
    """Why there is nothing to compare."""
    twice = f"{paths[0]} was given {len(files)} times" if len(files) > 1 else ""
    here = twice or (f"here is one, {' of '.join([*of, str(paths[0])])}" if paths else "none is named")
    return f"compare needs two runs or more, {here}; give their files or names, or a folder or a table that has both"


def _drawn(differences: Sequence[Difference]) -> tuple[list[Path], list[str | None]]:
    """The file of each run, and its name where the file has others."""
    found = [differences[0].a, *(each.b for each in differences)]
    files = [each.file for each in found]
    return [Path(file) for file in files], [each.run if files.count(each.file) > 1 else None for each in found]


def _show(found: Difference, screen: Console) -> None:
    a, b = found.a.run, found.b.run
    if a == b:
        a, b = (f"{each.run} of {each.file}" for each in (found.a, found.b))
    screen.print(f"A: {a} ({found.a.format}), {found.a.severity or 'nothing wrong'}", soft_wrap=True)
    screen.print(f"B: {b} ({found.b.format}), {found.b.severity or 'nothing wrong'}", soft_wrap=True)
    screen.print(_losses(found), soft_wrap=True)
    _table(screen, ("setting", "A", "B"), ((each.name, _cell(each.a), _cell(each.b)) for each in found.settings))
    _table(screen, ("alert", "A", "B"), ((each.detector, _told(each.a), _told(each.b)) for each in found.alerts))
    rows = (
        (
            each.statistic,
            each.site,
            f"{each.first_step:,} to {each.last_step:,}",
            _cell(each.a),
            _cell(each.b),
            figure(each.ratio, 3),
        )
        for each in found.statistics[:_SHOWN]
    )
    _table(screen, ("statistic", "layer", "steps", "A", "B", "B / A"), rows)
    screen.print()


def _table(screen: Console, headings: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> None:
    """Nothing where there is no row."""
    table = Table(*headings, box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for row in rows:
        table.add_row(*row)
    if table.row_count:
        screen.print(table)
        screen.print()


def _losses(both: Difference) -> str:
    found = both.losses
    if found is None:
        steps = " and ".join(f"{run.first_step:,} to {run.last_step:,}" for run in (both.a, both.b))
        return f"The runs have no step with a loss in common: their steps are {steps}. What needs none is compared."
    if found.differ_at is None:
        return f"The losses are the same number at all {found.common:,} common steps."
    ends = f"At the end (step {found.last_step:,}) A is at {figure(found.last[0])}, B at {figure(found.last[1])}."
    if found.between:
        ends += " They were logged at other steps: B's loss is read between its own, at A's."
    apart = found.between or found.differ_at == found.first_step
    same = "" if apart else f"The losses are the same until step {found.differ_at:,}"
    if found.part_at is None:
        return f"{same or 'The losses differ'}, by no more than noise. {ends}"
    return f"{same + ', and part' if same else 'The losses part'} beyond noise at step {found.part_at:,}. {ends}"


def _told(shown: Incident | None) -> str:
    return "" if shown is None else f"{shown.alert.severity} since step {shown.alert.since:,}"


def _cell(value: str | float | None) -> str:
    if value is None:
        return "not known"
    return value if isinstance(value, str) else figure(value) if isinstance(value, float) else f"{value:,}"


def _object(found: Difference) -> dict[str, Any]:
    """JSON types only."""
    losses = found.losses
    return {
        "a": as_object(found.a),
        "b": as_object(found.b),
        "settings": [asdict(each) for each in found.settings],
        "losses": None if losses is None else {**asdict(losses), "last": [number(value) for value in losses.last]},
        "alerts": [{"detector": each.detector, "a": _brief(each.a), "b": _brief(each.b)} for each in found.alerts],
        "statistics": [{**asdict(each), "ratio": each.ratio} for each in found.statistics],
    }


def _brief(shown: Incident | None) -> dict[str, Any] | None:
    if shown is None:
        return None
    return {"severity": shown.alert.severity, "since": shown.alert.since, "told": shown.told, "until": shown.until}
