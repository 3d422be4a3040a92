"""`stabmon watch`: how a run is doing, in the terminal."""

from __future__ import annotations

import os
import sys
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from stabmon.cli.edge import for_users

if TYPE_CHECKING:
    from stabmon.server.verdict import Level
    from stabmon.watch.source import Source

CANNOT_READ = 3
_CODES: dict[Level, int] = {"healthy": 0, "info": 0, "ended": 0, "silent": 1, "warning": 1, "critical": 2}


def watch(
    what: Annotated[
        str,
        typer.Argument(
            metavar="RUN", help="A run log, a folder (its newest run), a run in ./stabmon-runs, or the page's address."
        ),
    ] = "stabmon-runs",
    run: Annotated[str | None, typer.Option(help="Which run of the folder or of what is served there.")] = None,
    token_file: Annotated[
        Path | None, typer.Option(envvar="STABMON_TOKEN_FILE", help="A file that holds the address's token.")
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Print it once; exit code: see below.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="As --once, in JSON.")] = False,
) -> None:
    """How a run is doing, drawn anew each second until q or Ctrl-C; without a terminal, once.

    Where others see this machine's processes, give the address without its token, and the token as STABMON_TOKEN.
    With --once the exit code is 0 for a run that is well or has ended, 1 for a warning or no news, 2 for a critical
    alert or a run that failed, 3 where it cannot be read.
    """
    console = Console(highlight=False)
    with for_users(CANNOT_READ):
        source = _source(what, run, token_file)
        if as_json or once or not sys.stdout.isatty():
            raise typer.Exit(_once(source, console, as_json))
        from stabmon.watch.live import live

        live(source, console)


def _source(what: str, run: str | None, token_file: Path | None) -> Source:
    if what.startswith(("http://", "https://")):
        from stabmon.server.token import token_of
        from stabmon.watch.remote import Remote

        # Read anew each time: a file may be renewed.
        return Remote(what, lambda: token_of(os.environ.get("STABMON_TOKEN"), token_file), run)
    from stabmon.runlog.finding import located
    from stabmon.watch.source import Local

    return Local(located(Path(what), run))


def _once(source: Source, console: Console, as_json: bool) -> int:
    from stabmon.watch.screen import draw
    from stabmon.watch.view import look

    view = look(source)
    if as_json:
        typer.echo(view.model_dump_json())
    else:
        if isinstance(sys.stdout, TextIOWrapper):  # without Unicode there are question marks, not an error
            sys.stdout.reconfigure(errors="replace")
        console.print(draw(view, console.width))
    return _CODES[view.verdict.level]
