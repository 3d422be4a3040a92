"""`stabmon grafana`: dashboards and annotations into a Grafana that runs already."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stabmon.cli.edge import for_users

if TYPE_CHECKING:
    from stabmon.grafana import Grafana

grafana = typer.Typer(no_args_is_help=True, help="Dashboards and annotations into your Grafana.")

Url = Annotated[str, typer.Option(envvar="STABMON_GRAFANA_URL", help="Grafana's address.")]
TokenFile = Annotated[Path, typer.Option(help="A file with the token of a service account, and nothing else.")]


@grafana.command()
def push(
    url: Url,
    token_file: TokenFile,
    folder: Annotated[str, typer.Option(help="Its folder; made if there is none.")] = "stabmon",
    datasource: Annotated[str | None, typer.Option(help="Data source that is chosen first; else the default.")] = None,
    prometheus: Annotated[str | None, typer.Option(help="Prometheus' address: makes --datasource if missing.")] = None,
) -> None:
    """Put the dashboards into Grafana, over older ones of the same kind."""
    with for_users():
        from stabmon.grafana import shipped

        api = _grafana(url, token_file)
        version = api.health()
        wanted = datasource or ("stabmon" if prometheus else None)
        source = api.ensure_source(wanted, prometheus) if wanted else None
        found = api.push(shipped(source), api.ensure_folder(folder))
    typer.echo(f"Grafana {version}: {len(found)} dashboards in the folder {folder}")
    typer.echo("\n".join(found))


@grafana.command()
def annotate(
    run_log: Annotated[Path, typer.Argument(help="A recorded run (*.stabmon).")], url: Url, token_file: TokenFile
) -> None:
    """Mark alerts and restarts of a recorded run in Grafana; those already there are left as they are."""
    with for_users():
        from stabmon.grafana import annotate_run
        from stabmon.runlog import read

        added = annotate_run(_grafana(url, token_file), read(run_log))
    typer.echo(f"{added} annotations added")


def _grafana(url: str, token_file: Path) -> Grafana:
    from stabmon.grafana import Grafana

    token = token_file.read_text(encoding="utf-8", errors="replace").strip()
    if not token:
        raise ValueError(f"{token_file} is empty; put the token of a service account of Grafana into it")
    try:
        return Grafana(url, token)
    except ImportError as error:
        raise ValueError(str(error)) from None
