"""`stabmon bench …`: what it costs on this machine, and how exact it is."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from stabmon.cli.edge import AsJson, for_users, torch_needed

bench = typer.Typer(no_args_is_help=True, help="Measure stabmon on this machine.")


@bench.command()
def overhead(
    pairs: Annotated[int, typer.Option(help="Measurements of each kind of step.")] = 6,
    layers: Annotated[int, typer.Option(help="Of the GPT that is trained.")] = 2,
    width: Annotated[int, typer.Option(help="Of it, a multiple of 32.")] = 256,
    batch: Annotated[int, typer.Option(help="Sequences per step.")] = 32,
    length: Annotated[int, typer.Option(help="Tokens per sequence.")] = 128,
    device: Annotated[str, typer.Option(help="Where to train: cpu, cuda, mps.")] = "cpu",
    as_json: AsJson = False,
) -> None:
    """What a training step costs with stabmon, against the same step without it. Takes about five minutes."""
    with for_users():
        with torch_needed("bench"):
            from stabmon.bench.overhead import overhead as run
            from stabmon.bench.training import Size
        run(pairs, Size(layers, width, batch, length, device), as_json)


@bench.command()
def estimator(
    draws: Annotated[int, typer.Option(help="Random cotangents per network.")] = 480,
    as_json: AsJson = False,
) -> None:
    """How exact the output change of an update is, against exact derivatives in float64. Takes a minute or two."""
    with for_users():
        with torch_needed("bench"):
            from stabmon.bench.estimator import estimator as run
        run(draws, as_json)


@bench.command()
def ranks(
    processes: Annotated[list[int] | None, typer.Option(help="2, 4 or both; may be repeated.")] = None,
    mode: Annotated[list[str] | None, typer.Option(help="Such as ddp or fsdp2; may be repeated. All, if none.")] = None,
    level: Annotated[str, typer.Option(help="light, standard or deep.")] = "standard",
    as_json: AsJson = False,
) -> None:
    """What several processes on this machine read together, against one that sees all. Takes some minutes."""
    with for_users():
        with torch_needed("bench"):
            from stabmon.bench.ranks import ranks as run
        right = run(mode, processes or [2, 4], level, as_json)
        raise typer.Exit(0 if right else 1)


@bench.command()
def recorded(
    folder: Annotated[Path, typer.Argument(help="Has index.csv and its series, or algoperf.csv.gz and its outcomes.")],
    part: Annotated[
        str, typer.Option(help="Which runs: all, or of two halves by a hash of the id: calibration, test.")
    ] = "all",
    adjudication: Annotated[
        Path | None, typer.Option(help="CSV of run, point, verdict, why; by default FOLDER/adjudication.csv.")
    ] = None,
    events: Annotated[Path | None, typer.Option(help="Write alarms on unfailed runs here, to be judged.")] = None,
    as_json: AsJson = False,
) -> None:
    """Grade the detectors of the loss on recorded runs that are labelled. Needs no PyTorch."""
    with for_users():
        from stabmon.bench.recorded.command import recorded as run

        run(folder, part, adjudication, events, as_json)


@bench.command()
def exact(
    quick: Annotated[bool, typer.Option("--quick", help="A part that takes half a minute.")] = False,
    only: Annotated[str, typer.Option(help="Part of 'model / loop / precision'; * stands for anything.")] = "",
    markdown: Annotated[Path | None, typer.Option(help="Page to write the summary into, between its marks.")] = None,
    as_json: AsJson = False,
) -> None:
    """Every statistic against a second computation, over models, loops and precisions. Takes some minutes."""
    with for_users():
        with torch_needed("bench"):
            from stabmon.bench.exact import exact as run
        agrees = run(quick, only, as_json, markdown)
    if not agrees:
        raise typer.Exit(1)


@bench.command()
def compiled(
    level: Annotated[str, typer.Option(help="What is read: light, standard, deep.")] = "standard",
    backend: Annotated[list[str] | None, typer.Option(help="Of torch.compile; by default aot_eager, inductor.")] = None,
    as_json: AsJson = False,
) -> None:
    """Graphs, graph breaks and values of compiled models, watched and not. Takes some minutes."""
    with for_users():
        with torch_needed("bench"):
            from stabmon.bench.compiled import BACKENDS
            from stabmon.bench.compiled import compiled as run
        right = run(level, backend or BACKENDS, as_json)
    if not right:
        raise typer.Exit(1)


@bench.command()
def identity(
    only: Annotated[str, typer.Option(help="Part of a mode's name, such as DDP or compiled.")] = "",
    as_json: AsJson = False,
) -> None:
    """Whether trainings leave the same bits behind with stabmon as without, mode by mode. Takes some minutes."""
    with for_users():
        with torch_needed("bench"):
            from stabmon.bench.identity import identity as run
        identical = run(only, as_json)
    if not identical:
        raise typer.Exit(1)


@bench.command()
def detection(
    tier: Annotated[
        str, typer.Option(help="small (24 runs, 5 minutes on 2 cores) or full (two to three hours).")
    ] = "small",
    seeds: Annotated[str, typer.Option(help="test, or calibration: those that thresholds are chosen on.")] = "test",
    runs: Annotated[
        Path | None, typer.Option(help="Folder that keeps the recordings; what lies there is only judged again.")
    ] = None,
    train: Annotated[bool, typer.Option(help="Record what is missing in --runs, or judge only what is there.")] = True,
    workers: Annotated[int | None, typer.Option(help="Processes; by default one for each core.")] = None,
    markdown: Annotated[Path | None, typer.Option(help="Page to write the tables to.")] = None,
    picture: Annotated[Path | None, typer.Option(help="SVG file to draw the leads to.")] = None,
    as_json: AsJson = False,
) -> None:
    """How early, how often and how wrongly the detectors speak, on small trainings that go well or wrong."""
    with for_users():
        with torch_needed("bench"):
            from stabmon.bench.detection.command import Ask
            from stabmon.bench.detection.command import detection as run
        run(Ask(tier, seeds, runs, workers, train), as_json, markdown, picture)
