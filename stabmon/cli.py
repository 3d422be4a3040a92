"""The commands. Each imports what it needs when it is called: replay must work where torch is absent."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from stabmon import __version__
from stabmon.records import Alert, Event, RunState, Severity, Snapshot

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)

_STYLES: dict[Severity, str] = {"info": "cyan", "warning": "yellow", "critical": "bold red"}
_Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON, as the last line of the output.")]


def main() -> None:
    """Entry point of the command `stabmon`."""
    app()


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"stabmon {__version__}")
        raise typer.Exit


@app.callback()
def _stabmon(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print it.")] = False,
) -> None:
    """Sees a training run go wrong before its loss shows it."""


@app.command()
def replay(
    run_log: Annotated[Path, typer.Argument(help="A recorded run (*.stabmon).")], as_json: _Json = False
) -> None:
    """Judge a recorded run with the default detectors: the same alerts as live."""
    with _for_users():
        result = _replay(run_log, Console(stderr=as_json, soft_wrap=True))
    if as_json:
        typer.echo(json.dumps(result))


@app.command()
def demo(
    placement: Annotated[str, typer.Option(help="Where the norms are: post (stalls) or pre (learns).")] = "post",
    lr: Annotated[float, typer.Option(help="Learning rate.")] = 1e-3,
    warmup: Annotated[int, typer.Option(help="Steps of linear warm-up.")] = 0,
    steps: Annotated[int, typer.Option(help="Steps to train.")] = 300,
    optimizer: Annotated[str, typer.Option(help="adam, adamw or sgd.")] = "adam",
    seed: Annotated[int, typer.Option(help="Of the weights and of the batches.")] = 0,
    device: Annotated[str, typer.Option(help="Where to train: cpu, cuda, mps.")] = "cpu",
    hold: Annotated[bool, typer.Option("--hold", help="Keep serving after the training, until Ctrl-C.")] = False,
    as_json: _Json = False,
    port: Annotated[int | None, typer.Option(help="Of /metrics; by default 7466, or any free one.")] = None,
    folder: Annotated[Path | None, typer.Option(help="Of the run log; by default ./stabmon-runs.")] = None,
) -> None:
    """Train a small transformer on real text into a stall, and show the alert as it comes."""
    with _for_users():
        try:
            from stabmon.demo import demo as run
        except ModuleNotFoundError as error:
            if error.name != "torch":
                raise
            raise ValueError("the demo trains, so it needs PyTorch; pip install 'stabmon[torch]'") from None
        run(placement, lr, warmup, steps, optimizer, seed, device, hold, as_json, port, folder)


@contextmanager
def _for_users() -> Iterator[None]:
    """A wrong argument or file is one line and exit code 2, without a traceback."""
    try:
        yield
    except (ValueError, OSError) as error:
        text = (isinstance(error, OSError) and error.strerror) or str(error)
        named = f": {error.filename}" if isinstance(error, OSError) and error.filename else ""
        typer.echo(f"stabmon: {text}{named}", err=True)
        raise typer.Exit(2) from None


class _Screen:
    """A sink that prints alerts and counts steps."""

    name = "screen"

    def __init__(self, console: Console) -> None:
        self.steps = 0
        self._console = console

    def emit(self, snapshot: Snapshot, alerts: Sequence[Alert], events: Sequence[Event]) -> None:
        self.steps += 1
        for alert in alerts:
            style = "green" if alert.state == "cleared" else _STYLES[alert.severity]
            self._console.print(Text(f"{alert.message}\n", style=style))

    def close(self, state: RunState) -> None:
        """Nothing to let go of."""


def _replay(path: Path, console: Console) -> dict[str, Any]:
    from stabmon.detectors import default_detectors
    from stabmon.pipeline import build
    from stabmon.runlog import alert_summary, read

    recorded, screen = read(path), _Screen(console)
    pipeline = build(recorded.run, default_detectors(), [screen])
    for snapshot, events in recorded.feeds():
        pipeline.feed(snapshot, events)
    pipeline.close(recorded.state)
    raised = sum(alert.state == "raised" for alert in pipeline.alerts)
    summary = f"Run {recorded.run.name} ({recorded.state}): {screen.steps} steps, alerts raised: {raised}."
    console.print(summary, markup=False, highlight=False)
    return {
        "steps": screen.steps,
        "run": recorded.run.name,
        "state": recorded.state,
        "run_log": str(path),
        "alerts": [alert_summary(alert) for alert in pipeline.alerts],
    }
