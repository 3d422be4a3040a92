"""What all commands share at their edge."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON, as the last line of the output.")]


@contextmanager
def torch_needed(command: str) -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise ValueError(f"the {command} trains, so it needs PyTorch; pip install 'stabmon[torch]'") from None


@contextmanager
def for_users() -> Iterator[None]:
    """A wrong argument or file is one line and exit code 2, without a traceback."""
    try:
        yield
    except (ValueError, OSError) as error:
        text = (isinstance(error, OSError) and error.strerror) or str(error)
        named = f": {error.filename}" if isinstance(error, OSError) and error.filename else ""
        typer.echo(f"stabmon: {text}{named}", err=True)
        raise typer.Exit(2) from None
