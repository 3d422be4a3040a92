"""What all commands share at their edge."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON, as the last line of the output.")]


class Judging(TyperCommand):
    """A command whose exit code 2 means critical, so that a wrong argument is 3 like a wrong file."""

    def make_context(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return super().make_context(*args, **kwargs)
        except Exception as error:  # click's UsageError, which typer has a copy of from some release on
            if getattr(error, "exit_code", None) == 2:
                error.exit_code = 3  # type: ignore[attr-defined]
            raise


@contextmanager
def torch_needed(command: str) -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise ValueError(f"the {command} trains, so it needs PyTorch; pip install 'stabmon[torch]'") from None


@contextmanager
def for_users(code: int = 2) -> Iterator[None]:
    """A wrong argument or file is one line and that exit code, without a traceback."""
    try:
        yield
    except (ValueError, OSError) as error:
        typer.echo(f"stabmon: {message(error)}", err=True)
        raise typer.Exit(code) from None


def message(error: ValueError | OSError) -> str:
    """What a person is told of it, in one line that a terminal does not act on."""
    from stabmon.readers.text import printable

    text = (isinstance(error, OSError) and error.strerror) or str(error)
    named = f": {error.filename}" if isinstance(error, OSError) and error.filename else ""
    return printable(" ".join(f"{text}{named}".splitlines()))
