"""Recording and judging, in processes of one thread each."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

from stabmon.bench.detection.judging import Judged, judge
from stabmon.bench.detection.live import record, run_log
from stabmon.bench.detection.plan import Run
from stabmon.bench.isolation import failures_raised, own_settings
from stabmon.runlog import read


@dataclass(frozen=True, slots=True)
class Done:
    """A run that was judged, or why it was not."""

    run: Run
    judged: Judged | None
    failure: str = ""


def cores() -> int:
    """That this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def judged(runs: Sequence[Run], folder: Path, workers: int) -> Iterator[Done]:
    """As they are done. What lies in the folder, complete, is not trained again; what fails stops no other."""
    os.environ["OMP_NUM_THREADS"] = "1"  # of the workers: spawned ones read it before torch does
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        work = {pool.submit(_one, run, folder): run for run in runs}
        try:
            for future in as_completed(work):
                yield _done(work[future], future)
        finally:
            pool.shutdown(cancel_futures=True)  # on Ctrl-C those that have not begun never do


def _done(run: Run, future: Future[Judged]) -> Done:
    try:
        return Done(run, future.result())
    except Exception as error:  # also a worker that was killed
        return Done(run, None, f"{type(error).__name__}: {error}")


def _one(run: Run, folder: Path) -> Judged:
    scenario, seed = run
    path = run_log(scenario, seed, folder)
    if not complete(path):
        with own_settings(), failures_raised():
            _record(run, folder, path)
    return judge(path)


def complete(path: Path) -> bool:
    """Whether a run log is there, and of a run that came to its end."""
    return path.exists() and read(path).state == "finished"


def _record(run: Run, folder: Path, path: Path) -> None:
    """Beside the others, then moved in one go: a killed run leaves nothing that looks like one."""
    with tempfile.TemporaryDirectory(prefix=".recording-", dir=folder) as aside:
        made = record(*run, Path(aside))
        path.parent.mkdir(parents=True, exist_ok=True)
        os.replace(made, path)
