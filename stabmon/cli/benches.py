"""`stabmon bench …`: what it costs on this machine, and how exact it is."""

from __future__ import annotations

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
