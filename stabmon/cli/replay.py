"""`stabmon replay`: what went wrong in runs that were recorded, by stabmon or by another tool."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

import typer

from stabmon.cli.edge import AsJson, for_users, message
from stabmon.cli.verdicts import EXIT_CODES, SCHEMA, UNREADABLE, Told, as_object, console, show
from stabmon.records import SEVERITIES, Severity

if TYPE_CHECKING:
    from rich.console import Console

    from stabmon.readers import Recording
    from stabmon.replays import Replay, Verdict

Files = Annotated[
    list[str] | None,
    typer.Argument(metavar="FILE...", help="Files, folders, patterns such as 'runs/*.json'; - is standard input."),
]
Loss = Annotated[str | None, typer.Option(help="Column or key of the loss, where the wrong one was taken.")]
Step = Annotated[str | None, typer.Option(help="Column or key of the step.")]
_Since = Annotated[int, typer.Option(help="Tell only of alerts from this step on.")]
_Quiet = Annotated[bool, typer.Option("--quiet", help="Print nothing: the exit code tells.")]
_Follow = Annotated[bool, typer.Option("--follow", help="Read on as the file grows, until Ctrl-C.")]
Html = Annotated[Path | None, typer.Option("--html", help="Also write a page, as `stabmon report` does.")]

_ORDER: tuple[Severity | None, ...] = (None, *SEVERITIES)


def replay(
    files: Files = None,
    loss: Loss = None,
    step: Step = None,
    since: _Since = 0,
    as_json: AsJson = False,
    html: Html = None,
    quiet: _Quiet = False,
    follow: _Follow = False,
) -> None:
    """Judge recorded runs: run logs of stabmon, and what Hugging Face, Lightning, W&B, TensorBoard, MLflow and others
    wrote; text logs, CSV, JSONL.

    Exit code: 0 nothing wrong (or an info), 1 a warning, 2 critical, 3 a file cannot be read.
    """
    screen = None if quiet else console(stderr=as_json)
    found = _Found()
    with for_users(UNREADABLE):
        paths = _paths(files, follow, html, found)
    count = len(paths) + len(found.errors)
    for path in paths:
        _judge(path, found, screen, {"loss": loss, "step": step, "follow": follow}, since)
    if screen and count > 1:
        screen.print(found.summary)
    with for_users(UNREADABLE):
        write_report(None if found.errors else html, paths, loss, step)
    if as_json:
        typer.echo(json.dumps(found.as_object()))
    raise typer.Exit(found.exit_code)


@dataclass
class _Found:
    """What was said of which file."""

    verdicts: list[Verdict] = field(default_factory=list)
    errors: list[dict[str, str]] = field(default_factory=list)
    told: set[str] = field(default_factory=set)

    def refuse(self, file: object, why: str) -> None:
        """It cannot be read: told at once, and at the end in the JSON."""
        self.errors.append({"file": str(file), "error": why})
        typer.echo(f"stabmon: {why}", err=True)

    @property
    def exit_code(self) -> int:
        return max([UNREADABLE] * bool(self.errors) + [EXIT_CODES[each.severity] for each in self.verdicts], default=0)

    @property
    def summary(self) -> str:
        """How many of which severity."""
        severities = [verdict.severity for verdict in self.verdicts]
        counts: dict[str, int] = {name or "nothing wrong": severities.count(name) for name in _ORDER}
        counts["cannot be read"] = len(self.errors)
        told = ", ".join(f"{name}: {count}" for name, count in counts.items() if count)
        return f"{len(severities)} {'run' if len(severities) == 1 else 'runs'}. {told}."

    def as_object(self) -> dict[str, Any]:
        """With one run its keys are at the top as well."""
        runs = [as_object(verdict) for verdict in self.verdicts]
        alone = runs[0] if len(runs) == 1 and not self.errors else {}
        worst = max((verdict.severity for verdict in self.verdicts), key=_ORDER.index, default=None)
        whole = {"version": SCHEMA, "exit_code": self.exit_code, "severity": worst}
        return {**whole, **alone, "runs": runs, "errors": self.errors}


def _paths(files: list[str] | None, follow: bool, html: Path | None, told: _Found) -> list[Path]:
    from stabmon.readers import found

    if not files:
        raise ValueError("replay needs a file; give one or more, a folder, or - for standard input")
    paths: list[Path] = []
    for file in files:
        try:
            paths += [path for path in found([file]) if path not in paths]
        except (ValueError, OSError) as error:
            told.refuse(file, message(error))
    for option, given in (("--follow", follow), ("--html", html)):
        if given and len(paths) > 1:
            raise ValueError(
                f"{option} takes one file, here are {len(paths)}: {paths[0]}, {paths[1]}, …; name one of them"
            )
    if html and paths and (str(paths[0]) == "-" or paths[0].is_fifo()):
        raise ValueError("--html reads the file a second time, which standard input does not allow; give a file")
    return paths


def _judge(path: Path, found: _Found, screen: Console | None, how: dict[str, Any], since: int) -> None:
    """All runs of a file. One that cannot be read is told, and the others are judged."""
    from stabmon.replays import Replay

    sinks = [Told(screen)] if screen and how["follow"] else []
    try:
        for recording in _recordings(path, how):
            made = Replay(recording, str(path), sinks=sinks)
            _run(made, how["follow"])
            found.verdicts.append(made.verdict(since))
            if screen:
                show(found.verdicts[-1], screen, found.told)
    except KeyboardInterrupt:
        if not how["follow"]:
            raise
        found.refuse(path, f"{path} held nothing that can be judged until Ctrl-C")
    except (ValueError, OSError) as error:
        found.refuse(path, message(error))


def _run(replay: Replay, follow: bool) -> None:
    try:
        replay.run()
    except KeyboardInterrupt:
        if not follow:
            raise


def _recordings(path: Path, how: dict[str, Any]) -> Iterator[Recording]:
    """Of a file that holds several runs, all; standard input can be read once."""
    from stabmon.readers import opened

    source: Path | BinaryIO = sys.stdin.buffer if str(path) == "-" else path
    first = opened(source, **how)
    yield first
    for name in first.others if path.is_file() else ():
        yield opened(source, run=name, **how)


def write_report(html: Path | None, paths: list[Path], loss: str | None, step: str | None) -> None:
    """Of all of them, in one file; where none was asked for, nothing."""
    if html is None:
        return
    from stabmon.report import report

    check_out(html, paths)
    html.write_text(report(paths, loss=loss, step=step), encoding="utf-8")


def check_out(out: Path, paths: Sequence[Path]) -> None:
    """ValueError: it would be written over a run."""
    if any(out.exists() and path.exists() and out.samefile(path) for path in paths):
        raise ValueError(f"{out} is the run itself and would be lost; name another file to write to")
