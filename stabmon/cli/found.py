"""What replay found in all its files: shown run by run where they are few, and in the end counted, the worst first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import typer
from rich import box
from rich.table import Table
from rich.text import Text

from stabmon.cli.verdicts import EXIT_CODES, SCHEMA, STYLES, UNREADABLE, as_object, show
from stabmon.readers.text import printable
from stabmon.records import SEVERITIES, Severity

if TYPE_CHECKING:
    from rich.console import Console
    from rich.status import Status

    from stabmon.replays import Incident, Verdict

SHOWN = 10
"""Runs that are shown in full; of more, the worst are listed in the end."""
LISTED = 20
_ORDER: tuple[Severity | None, ...] = (None, *SEVERITIES)


@dataclass
class Found:
    """What was said of which file."""

    screen: Console | None
    """None: nothing is shown."""
    verdicts: list[Verdict] = field(default_factory=list)
    errors: list[dict[str, str]] = field(default_factory=list)
    files: int = 1
    """How many were given."""
    _told: set[str] = field(default_factory=set)
    _status: Status | None = None

    @contextmanager
    def waiting(self, follow: bool) -> Iterator[None]:
        """On a terminal, how far it is; nothing where alerts come as they are read."""
        if self.screen is None or follow:
            yield
            return
        with self.screen.status("reading") as self._status:
            yield

    def take(self, verdict: Verdict) -> None:
        """The next run."""
        self.verdicts.append(verdict)
        if self._status:
            self._status.update(f"{_runs(len(self.verdicts))} judged")
        if self.screen is None:
            return
        if len(self.verdicts) <= SHOWN:
            show(verdict, self.screen, self._told)
        elif len(self.verdicts) == SHOWN + 1:
            self.screen.print(f"There are more than {SHOWN} runs; of the others the worst are listed in the end.")

    def refuse(self, file: object, why: str) -> None:
        """It cannot be read: told at once, and at the end in the JSON."""
        self.errors.append({"file": str(file), "error": why})
        typer.echo(f"stabmon: {why}", err=True)

    def leave_out(self, file: object, why: str) -> None:
        """It is no run: told, and wrong only where nothing else was given, as it is beside runs in many folders."""
        if self.files == 1:
            self.refuse(file, why)
        else:
            self.say([why])

    def say(self, lines: Sequence[str]) -> None:
        """What to know of the files, once each."""
        for line in lines:
            if self.screen and line not in self._told:
                self.screen.print(Text(line, style="dim"), soft_wrap=True)
            self._told.add(line)

    def sum_up(self) -> None:
        """Of several runs: how many of which severity, and of many the worst."""
        if self.screen is None or len(self.verdicts) + len(self.errors) < 2:
            return
        if len(self.verdicts) > SHOWN:
            self._list()
        self.screen.print(self._counted(), soft_wrap=True)

    @property
    def exit_code(self) -> int:
        return max([UNREADABLE] * bool(self.errors) + [EXIT_CODES[each.severity] for each in self.verdicts], default=0)

    def as_object(self) -> dict[str, Any]:
        """With one run its keys are at the top as well."""
        runs = [as_object(verdict) for verdict in self.verdicts]
        alone = runs[0] if len(runs) == 1 and not self.errors else {}
        worst = max((verdict.severity for verdict in self.verdicts), key=_ORDER.index, default=None)
        whole = {"version": SCHEMA, "exit_code": self.exit_code, "severity": worst}
        return {**whole, **alone, "runs": runs, "errors": self.errors}

    def _counted(self) -> str:
        severities = [verdict.severity for verdict in self.verdicts]
        counts: dict[str, int] = {name or "nothing wrong": severities.count(name) for name in _ORDER}
        counts["cannot be read"] = len(self.errors)
        told = ", ".join(f"{name}: {count:,}" for name, count in counts.items() if count)
        return f"{_runs(len(severities))}. {told}."

    def _list(self) -> None:
        assert self.screen is not None
        ill = [verdict for verdict in self.verdicts if verdict.severity]
        worst_first = sorted(ill, key=lambda verdict: -_ORDER.index(verdict.severity))
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
        for heading, share in (("worst first", 2), ("file", 3), ("", 1), ("since step", 1), ("what", 5)):
            table.add_column(heading, ratio=share, overflow="fold")
        for verdict in worst_first[:LISTED]:
            table.add_row(*_cells(verdict))
        if ill:
            self.screen.print(table)
        if len(ill) > LISTED:
            self.screen.print(f"{len(ill) - LISTED:,} more have something wrong; --json tells of all.")


def _runs(count: int) -> str:
    return f"{count:,} {'run' if count == 1 else 'runs'}"


def _cells(verdict: Verdict) -> list[Text]:
    shown = _worst(verdict)
    severity = shown.alert.severity
    return [
        Text(printable(verdict.run)),
        Text(printable(verdict.file)),
        Text(severity, style=STYLES[severity]),
        Text(f"{shown.alert.since:,}", justify="right"),
        Text(f"{shown.alert.detector}: the run {shown.alert.action.partition('. ')[0]}"),
    ]


def _worst(verdict: Verdict) -> Incident:
    """The first one of the highest severity."""
    return next(each for each in verdict.incidents if each.alert.severity == verdict.severity)
