"""`stabmon report`: a run as one HTML file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from stabmon.cli.edge import for_users
from stabmon.cli.options import Loss, Of, Step
from stabmon.cli.pages import check_out, check_unnamed, write
from stabmon.cli.runs import STANDARD_INPUT, is_stream, only_run
from stabmon.cli.verdicts import UNREADABLE, printed
from stabmon.readers.text import printable


def report(
    run: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="RUN", help="A run log, what another tool wrote, or the name of a run in ./stabmon-runs."
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="By default beside you, named as the run: NAME.html.")] = None,
    of: Of = None,
    loss: Loss = None,
    step: Step = None,
) -> None:
    """Write the page of a run as one HTML file that opens from disk and needs no network, to keep or to send."""
    with for_users(UNREADABLE):
        from stabmon.report import report as made

        path, note = only_run(run or [], "report")
        if path == STANDARD_INPUT:
            raise ValueError("report reads a file, not standard input; write it to one first")
        page = out or Path(f"{_name(path)}.html")
        check_out(page, [path])
        if out is None:
            check_unnamed(page)
        size = write(page, made(path, loss=loss, step=step, run=of))
    if note:
        typer.echo(printable(note), err=True)
    if not is_stream(page):
        printed(f"{printable(str(page))}: {size / 1e6:.1f} MB")


def _name(path: Path) -> str:
    """Of a file without what tells its kind, such as .csv or .txt.gz; of a folder its own."""
    if is_stream(path):
        return "report"
    name = path.resolve().name
    stem = name.removesuffix(".gz")
    return (name if path.is_dir() else stem.rpartition(".")[0] or stem) or "report"
