"""From a tier to figures: on the screen, as JSON, as a page with a picture."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

from stabmon.bench.detection import picture, screen
from stabmon.bench.detection.figures import Graded
from stabmon.bench.detection.judging import Judged
from stabmon.bench.detection.live import run_log
from stabmon.bench.detection.outcomes import Known, outcomes
from stabmon.bench.detection.plan import Run, plan
from stabmon.bench.detection.result import result
from stabmon.bench.detection.scenarios import run_name
from stabmon.bench.detection.workers import complete, cores, judged


@dataclass(frozen=True, slots=True)
class Ask:
    """What to run."""

    tier: str
    seeds: str
    folder: Path | None
    """Of the recordings; None: a temporary one."""
    workers: int | None
    train: bool = True
    """False: judge what the folder holds, and train nothing."""

    @property
    def command(self) -> str:
        """As it was typed, but for the folder."""
        return f"stabmon bench detection --tier {self.tier} --seeds {self.seeds}"


def detection(ask: Ask, as_json: bool, markdown: Path | None, svg: Path | None) -> None:
    """Record, judge and show; with `as_json` the last line of stdout is the result. Progress goes to stderr.

    ValueError: an unknown tier or part, no recordings where none may be made, a folder of a file that is not there.
    """
    for file in (markdown, svg):
        if file is not None and not file.parent.is_dir():
            raise ValueError(f"folder {file.parent} is not there; make it, then {file.name} is written into it")
    runs = detected(ask)
    console = Console(stderr=as_json)
    screen.show(console, runs)
    if svg is not None:
        picture.draw(svg, runs)
    if markdown is not None:
        screen.write(markdown, runs, f"# What the detectors did\n\n    {ask.command}", svg.name if svg else None)
    if as_json:
        sys.stdout.write(json.dumps(result(runs), allow_nan=False) + "\n")


def detected(ask: Ask) -> list[Graded]:
    """Every run of the tier, in the order of its name."""
    runs = plan(ask.tier, ask.seeds)
    workers = ask.workers if ask.workers is not None else cores()
    if workers < 1:
        raise ValueError(f"workers is {workers}; give 1 or more, by default one for each core ({cores()})")
    with ExitStack() as stack:
        folder = ask.folder or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="stabmon-bench-")))
        if ask.train:
            _check_packages(runs)
            folder.mkdir(parents=True, exist_ok=True)
        else:
            runs = _recorded(runs, folder)
        return _graded(runs, folder, workers)


def _check_packages(runs: Sequence[Run]) -> None:
    """Before the first training, not after the last."""
    if any(scenario.data == "digits" for scenario, _ in runs) and find_spec("sklearn") is None:
        raise ValueError(
            "the images of digits that some trainings learn come with scikit-learn: pip install scikit-learn"
        )


def _recorded(runs: Sequence[Run], folder: Path) -> list[Run]:
    found = [run for run in runs if complete(run_log(*run, folder))]
    if not found:
        raise ValueError(
            f"folder {folder} has no recording of this tier and these seeds; "
            "give the folder that has them by --runs, or leave out --no-train"
        )
    return found


def _graded(runs: Sequence[Run], folder: Path, workers: int) -> list[Graded]:
    found: dict[str, Judged] = {}
    known: list[Known] = []
    failed: dict[str, str] = {}
    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(f"{len(runs)} trainings", total=len(runs))
        for done in judged(runs, folder, workers):
            scenario, seed = done.run
            name = run_name(scenario.name, seed)
            if done.judged is None:
                failed[name] = done.failure
            else:
                found[name] = done.judged
                known.append(Known(scenario, seed, done.judged.curve))
            progress.advance(task)
    if failed:
        name, failure = next(iter(failed.items()))
        raise ValueError(
            f"{len(failed)} of {len(runs)} runs could not be recorded or judged; the first: {name}: {failure}"
        )
    labels = outcomes(known)
    return [Graded(labels[name], found[name]) for name in sorted(found)]
