"""The commands. Each imports what it needs when it is called: replay must work where torch is absent."""

from __future__ import annotations

import os
from pathlib import Path
from threading import Event as Pause
from threading import Thread
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stabmon import __version__
from stabmon.cli.benches import bench
from stabmon.cli.compare import compare
from stabmon.cli.dashboards import grafana
from stabmon.cli.edge import AsJson, Judging, for_users, torch_needed
from stabmon.cli.options import Port
from stabmon.cli.replay import replay
from stabmon.cli.report import report
from stabmon.cli.runbooks import runbook
from stabmon.cli.watch import watch

if TYPE_CHECKING:
    from stabmon.server.thread import Server

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
app.add_typer(bench, name="bench")
app.add_typer(grafana, name="grafana")
app.command()(runbook)
for judging in (replay, report, compare, watch):
    app.command(cls=Judging)(judging)

LEFTOVERS_SECONDS = 30.0
"""How often `serve` looks for alerts that a run which died could not deliver."""


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
def demo(
    placement: Annotated[str, typer.Option(help="Where the norms are: post (stalls) or pre (learns).")] = "post",
    lr: Annotated[float, typer.Option(help="Learning rate.")] = 1e-3,
    warmup: Annotated[int, typer.Option(help="Steps of linear warm-up.")] = 0,
    steps: Annotated[int, typer.Option(help="Steps to train.")] = 300,
    optimizer: Annotated[str, typer.Option(help="adam, adamw or sgd.")] = "adam",
    seed: Annotated[int, typer.Option(help="Of the weights and of the batches.")] = 0,
    device: Annotated[str, typer.Option(help="Where to train: cpu, cuda, mps.")] = "cpu",
    hold: Annotated[bool, typer.Option("--hold", help="Keep serving after the training, until Ctrl-C.")] = False,
    as_json: AsJson = False,
    port: Port = None,
    folder: Annotated[Path | None, typer.Option(help="Of the run log; by default ./stabmon-runs.")] = None,
) -> None:
    """Train a small transformer on real text into a stall, and show the alert as it comes."""
    with for_users():
        with torch_needed("demo"):
            from stabmon.demo import demo as run
        run(placement, lr, warmup, steps, optimizer, seed, device, hold, as_json, port, folder)


@app.command()
def serve(
    folder: Annotated[Path, typer.Argument(help="Where run logs (*.stabmon) are, or will be with --wait.")],
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Port = None,
    token: Annotated[
        str | None, typer.Option(envvar="STABMON_TOKEN", help="Page and API ask for it; by default a new one.")
    ] = None,
    token_file: Annotated[
        Path | None, typer.Option(envvar="STABMON_TOKEN_FILE", help="A file that holds the token.")
    ] = None,
    allow_host: Annotated[
        list[str] | None, typer.Option(help="A further name that it may be asked for by; may be given again.")
    ] = None,
    certificate: Annotated[Path | None, typer.Option(help="PEM file: serve HTTPS, with --key.")] = None,
    key: Annotated[Path | None, typer.Option(help="The certificate's private key.")] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Serve even if there is no run yet.")] = False,
) -> None:
    """Page, JSON, /metrics and /sd (Prometheus' http_sd) for the runs of a folder, while they train or long after.
    Until Ctrl-C.
    """
    with for_users():
        from stabmon.server.token import token_of

        given = {"host": host, "port": port, "token": token_of(token, token_file), "hosts": allow_host or ()}
        server = _serve(folder, wait, {**given, "certificate": certificate, "key": key})
    try:
        Pause().wait()
    except KeyboardInterrupt:
        server.stop()


def _serve(folder: Path, wait: bool, given: dict[str, Any]) -> Server:
    from stabmon.detectors import default_detectors
    from stabmon.runlog import in_folder
    from stabmon.server.thread import Server
    from stabmon.sinks.recorded import RecordedMetrics
    from stabmon.sinks.slack import check

    if folder.exists() and not folder.is_dir():
        raise ValueError(f"folder {folder} is a file; give its folder, {folder.parent}")
    if not folder.exists() and not wait:
        raise ValueError(f"folder {folder} is not there; give a folder of runs, or --wait to serve it once it is there")
    found = in_folder(folder)
    if not found and not wait:
        raise ValueError(
            f"folder {folder} has no run log (*.stabmon); give the folder that a training writes to (its setting "
            "`folder`, by default stabmon-runs), or --wait to serve it until there is one"
        )
    if webhook := os.environ.get("STABMON_SLACK"):
        check(webhook)
    metrics = RecordedMetrics(lambda: in_folder(folder), [detector.name for detector in default_detectors()])
    server = Server(metrics.render, folder=folder, **given)
    typer.echo(
        f"Serving {len(found)} {'run' if len(found) == 1 else 'runs'} of {folder} until Ctrl-C: {server.page_url}"
    )
    if server.tunnel:
        typer.echo(f"From the machine you sit at, first: {server.tunnel}")
    if webhook:
        _send_leftovers(folder, webhook)
    return server


def _send_leftovers(folder: Path, webhook: str) -> None:
    """Tell Slack what runs that died could not, now and every half minute."""
    from stabmon.sinks.slack import resend

    def again() -> None:
        resend(folder, webhook)
        while not Pause().wait(LEFTOVERS_SECONDS):
            resend(folder, webhook)

    Thread(target=again, name="stabmon-leftovers", daemon=True).start()
