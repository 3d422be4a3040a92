"""`stabmon report`: a run as one HTML file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from stabmon.cli.edge import for_users
from stabmon.cli.replay import Loss, Step, check_out
from stabmon.cli.verdicts import UNREADABLE


def report(
    run: Annotated[Path, typer.Argument(help="A run log (*.stabmon), or what another tool wrote.")],
    out: Annotated[Path | None, typer.Option(help="By default beside you, named as the run: NAME.html.")] = None,
    loss: Loss = None,
    step: Step = None,
) -> None:
    """Write the page of a run as one HTML file that opens from disk and needs no network, to keep or to send."""
    with for_users(UNREADABLE):
        from stabmon.report import report as made

        if str(run) == "-":
            raise ValueError("report reads a file, not standard input; write it to one first")
        path = out or Path(f"{run.resolve().name.partition('.')[0]}.html")
        check_out(path, [run])
        text = made(run, loss=loss, step=step)
        path.write_text(text, encoding="utf-8")
    typer.echo(f"{path}: {len(text.encode()) / 1e6:.1f} MB")
