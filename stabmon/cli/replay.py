"""`stabmon replay`: what went wrong in runs that were recorded, by stabmon or by another tool."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stabmon.cli.edge import AsJson, for_users, message
from stabmon.cli.options import Files, Html, Loss, Of, Step
from stabmon.cli.pages import check_out, check_readable_again, write
from stabmon.cli.runs import STANDARD_INPUT, runs_of
from stabmon.cli.stopping import ended_gently, undisturbed
from stabmon.cli.verdicts import UNREADABLE, Told, console, printed

if TYPE_CHECKING:
    from stabmon.cli.found import Found

_Since = Annotated[int, typer.Option(min=0, help="Tell only of what stood at this step or came later.")]
_Quiet = Annotated[bool, typer.Option("--quiet", help="Print nothing: the exit code tells.")]
_Follow = Annotated[bool, typer.Option("--follow", help="Read on as the file grows, until Ctrl-C.")]


def replay(
    files: Files = None,
    of: Of = None,
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
    from stabmon.cli.found import Found

    with ended_gently(follow, UNREADABLE):
        found = Found(None if quiet else console(stderr=as_json))
        with for_users(UNREADABLE):
            paths = _paths(files, follow, html, found)
        how = {"loss": loss, "step": step, "run": of, "follow": follow}
        found.files = len(paths)
        with found.waiting(follow):
            for path in paths:
                _judge(path, found, how, since)
        found.sum_up()
        if html and not found.errors:
            _write(html, paths[0], found, {"loss": loss, "step": step, "run": of})
        if as_json:
            printed(json.dumps(found.as_object()))
        raise typer.Exit(found.exit_code)


def _paths(files: list[str] | None, follow: bool, html: Path | None, found: Found) -> list[Path]:
    from stabmon.readers import Notes

    if not files:
        raise ValueError("replay needs a file; give one or more, a folder, or - for standard input")
    paths: list[Path] = []
    notes = Notes()
    for file in files:
        try:
            paths += [path for path in runs_of([file], notes) if path not in paths]
        except (ValueError, OSError) as error:
            found.refuse(file, message(error))
    found.say(notes)
    for option, given in (("--follow", follow), ("--html", html)):
        if given and len(paths) > 1:
            raise ValueError(
                f"{option} takes one file, here are {len(paths)}: {paths[0]}, {paths[1]}, …; name one of them"
            )
    if html:
        check_readable_again(paths)
        check_out(html, paths)
    return paths


def _judge(path: Path, found: Found, how: dict[str, Any], since: int) -> None:
    """All runs of a file. One that cannot be read is told, and the others are judged."""
    from stabmon.readers import NoRun
    from stabmon.replays import verdicts

    try:
        if path == STANDARD_INPUT and sys.stdin is None:
            raise ValueError("standard input is closed; pipe something into it, or give a file")
        if how["follow"] or how["run"] is not None:
            _judge_one(path, found, how, since)
            return
        for verdict in verdicts(path, loss=how["loss"], step=how["step"], since=since):
            found.take(verdict)
    except NoRun as error:
        found.leave_out(path, message(error))
    except KeyboardInterrupt:
        if not how["follow"]:
            raise
        found.refuse(path, f"{path} held nothing that can be judged until it was stopped")
    except (ValueError, OSError) as error:
        found.refuse(path, message(error))


def _judge_one(path: Path, found: Found, how: dict[str, Any], since: int) -> None:
    """The file that is followed, or the run that was named. Where it ceases to be readable, what was read is judged."""
    from stabmon.readers import opened
    from stabmon.replays import Replay

    follow, screen = how["follow"], found.screen
    source = sys.stdin.buffer if path == STANDARD_INPUT else path
    made = Replay(opened(source, **how), str(path), sinks=[Told(screen)] if screen and follow else [])
    try:
        made.run()
    except KeyboardInterrupt:
        if not follow:
            raise
    except (ValueError, OSError) as error:
        if not made.verdict().steps:
            raise
        found.refuse(path, message(error))
    undisturbed(follow)
    found.take(made.verdict(since))


def _write(html: Path, path: Path, found: Found, how: dict[str, str | None]) -> None:
    """What was judged is told even so where it cannot be written."""
    from stabmon.report import report

    try:
        if len(found.verdicts) > 1:
            raise ValueError(f"{path} holds {len(found.verdicts):,} runs; name the one to draw with --run")
        write(html, report(path, **how))
    except (ValueError, OSError) as error:
        found.refuse(html, message(error))
