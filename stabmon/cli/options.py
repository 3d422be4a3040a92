"""Arguments that several commands have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Files = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="FILE...",
        help="Files, folders, patterns such as 'runs/*.json', names of runs in ./stabmon-runs; - is standard input.",
    ),
]
Loss = Annotated[str | None, typer.Option(help="Column or key of the loss, where the wrong one was taken.")]
Step = Annotated[str | None, typer.Option(help="Column or key of the step.")]
Of = Annotated[str | None, typer.Option("--run", help="Which run of a file that holds several.")]
Runs = Annotated[
    list[str] | None,
    typer.Option("--run", metavar="NAME", help="Of a file that holds several: those alone, the first one first."),
]
Html = Annotated[Path | None, typer.Option("--html", help="Also write a page, as `stabmon report` does.")]
Port = Annotated[
    int | None, typer.Option(min=0, max=65535, help="Of page and /metrics; by default 7466, or any free one.")
]
