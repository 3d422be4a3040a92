"""`stabmon runbook`: the page of a detector, in the terminal."""

from __future__ import annotations

from typing import Annotated

import typer

from stabmon.cli.edge import for_users
from stabmon.records import RUNBOOKS


def runbook(
    name: Annotated[
        str | None, typer.Argument(help="Of a detector, as in its alerts; without it: which there are.")
    ] = None,
) -> None:
    """What an alert means, what to do about it, and what it was told apart from."""
    with for_users():
        typer.echo(_page(name) if name else _list())


def _names() -> list[str]:
    return sorted(path.stem for path in RUNBOOKS.glob("*.md"))


def _list() -> str:
    """Name and title of each page."""
    titles = ((RUNBOOKS / f"{name}.md").read_text(encoding="utf-8").partition("\n")[0] for name in _names())
    return "\n".join(title.removeprefix("# ") for title in titles)


def _page(name: str) -> str:
    if name not in _names():
        raise ValueError(f"there is no runbook {name!r}; there are: {', '.join(_names())}")
    return (RUNBOOKS / f"{name}.md").read_text(encoding="utf-8").rstrip()
