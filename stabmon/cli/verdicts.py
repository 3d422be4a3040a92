"""What replay found, for people and for programs."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import TextIOWrapper
from math import isfinite
from typing import IO, TYPE_CHECKING, Any

import typer
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from stabmon.readers.text import printable
from stabmon.records import Alert, Event, RunState, Severity, Snapshot, figure
from stabmon.runlog import alert_summary

if TYPE_CHECKING:
    from stabmon.replays import Incident, Verdict

SCHEMA = 1
"""Of the JSON; raised when a key goes or changes its meaning (docs/replay.md)."""
STYLES: dict[Severity, str] = {"info": "cyan", "warning": "yellow", "critical": "bold red"}
EXIT_CODES: dict[Severity | None, int] = {None: 0, "info": 0, "warning": 1, "critical": 2}
UNREADABLE = 3
"""Exit code where something cannot be read; also of a wrong argument, so that 2 means critical alone."""
_PIPED_WIDTH = 120
_SHOWN_EVIDENCE = 4


class Screen(Console):
    """One whose reader may go (`| head`): the rest is printed to nobody, and the exit code still tells."""

    def print(self, *args: Any, **kwargs: Any) -> None:
        with _printing(self.file):
            super().print(*args, **kwargs)

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def console(stderr: bool) -> Console:
    """As wide as the terminal; into a pipe 120 columns, without colour."""
    _forgive(sys.stderr if stderr else sys.stdout)
    made = Screen(stderr=stderr, highlight=False, markup=False)
    return made if made.is_terminal else Screen(stderr=stderr, highlight=False, markup=False, width=_PIPED_WIDTH)


def printed(text: str) -> None:
    """On standard output, if anybody reads it."""
    _forgive(sys.stdout)
    with _printing(sys.stdout):
        typer.echo(text)


def _forgive(stream: IO[str] | None) -> None:
    """What the terminal's encoding lacks is a question mark."""
    if isinstance(stream, TextIOWrapper):
        stream.reconfigure(errors="replace")


@contextmanager
def _printing(stream: IO[str]) -> Iterator[None]:
    """Where nobody reads any more, the rest goes nowhere; where a disk is full, it ends."""
    try:
        yield
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        if isinstance(error, BrokenPipeError):
            return
        if stream is not sys.stderr:
            typer.echo(f"stabmon: what was found cannot be printed: {error.strerror}", err=True)
        raise typer.Exit(UNREADABLE) from None


class Told:
    """A sink that prints alerts as they come."""

    name = "screen"

    def __init__(self, screen: Console) -> None:
        self._screen = screen

    def emit(self, snapshot: Snapshot, alerts: Sequence[Alert], events: Sequence[Event]) -> None:
        for alert in alerts:
            style = "green" if alert.state == "cleared" else STYLES[alert.severity]
            self._screen.print(Text(f"{alert.message}\n", style=style), soft_wrap=True)

    def close(self, state: RunState) -> None:
        """Nothing to let go of."""


def show(verdict: Verdict, screen: Console, told: set[str]) -> None:
    """A line on the run, a table of what went wrong, what was not seen. `told`: lines that need not be told again."""
    worst = verdict.severity
    word = worst or "nothing wrong that could be seen"
    screen.print(
        Text.assemble(f"{printable(verdict.title)}: ", (word, STYLES[worst] if worst else "green")), soft_wrap=True
    )
    if verdict.incidents:
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
        for heading, share in (("what", 5), ("when", 2), ("how sure", 3), ("what to do first", 4)):
            table.add_column(heading, ratio=share, overflow="fold")
        for shown in verdict.incidents:
            table.add_row(*_cells(shown))
        screen.print(table)
    for line in (*verdict.notes, verdict.unseen):
        if line and line not in told:
            screen.print(Text(line, style="dim"), soft_wrap=True)
            told.add(line)


def _cells(shown: Incident) -> list[Text]:
    alert = shown.alert
    evidence = [f"{name} {figure(value, 3)}" for name, value in alert.evidence.items()][:_SHOWN_EVIDENCE]
    end = "stands" if shown.until is None else f"over at {shown.until:,}"
    where = "" if alert.layer is None else f" (layer {alert.layer}, {printable(alert.site)})"
    return [
        Text.assemble((alert.detector, STYLES[alert.severity]), f"{where}: the run {alert.action}"),
        Text(f"since step {alert.since:,}\ntold at {shown.told:,}\n{end}"),
        Text.assemble(
            (alert.severity, STYLES[alert.severity]), f", {alert.score:.3g} x its line\n", ", ".join(evidence)
        ),
        Text("\n".join(alert.remedies[:2])),
    ]


def as_object(verdict: Verdict) -> dict[str, Any]:
    """JSON types only."""
    return {
        "file": verdict.file,
        "run": verdict.run,
        "run_log": verdict.file,
        "format": verdict.format,
        "state": verdict.state,
        "severity": verdict.severity,
        "steps": verdict.steps,
        "first_step": verdict.first_step,
        "last_step": verdict.last_step,
        "first_loss": number(verdict.first_loss),
        "last_loss": number(verdict.last_loss),
        "alerts": [_alert(alert) for alert in verdict.alerts],
        "could_run": list(verdict.could_run),
        "could_not_run": {name: list(lacks) for name, lacks in verdict.could_not_run.items()},
        "notes": list(verdict.notes),
    }


def _alert(alert: Alert) -> dict[str, Any]:
    return {
        **alert_summary(alert),
        "since": alert.since,
        "site": alert.site,
        "score": number(alert.score),
        "action": alert.action,
        "cause": alert.cause,
        "remedies": list(alert.remedies),
        "ruled_out": list(alert.ruled_out),
    }


def number(value: float) -> float | None:
    """JSON knows no NaN and no Inf."""
    return float(value) if isfinite(value) else None
