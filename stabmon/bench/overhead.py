"""`stabmon bench overhead`: what a training step costs with stabmon, against the same step without it."""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console

from stabmon.bench.clock import now, one_thread
from stabmon.bench.figures import BLOCKS, LAYERS, OUTPUT, SCALARS, Cost, Pair, rows
from stabmon.bench.isolation import failures_raised, own_settings
from stabmon.bench.screen import show
from stabmon.bench.training import Size, Training
from stabmon.bench.waits import counting
from stabmon.monitor import Monitor
from stabmon.taps import Due, hooks
from stabmon.taps.schedule import PROBES_PER_BLOCK_READING

_NEVER = 10**9


@dataclass(frozen=True, slots=True)
class Kind:
    """How a monitor is brought to read `due` in each of `steps` steps, which come after the first one it sees."""

    due: Due
    every: int
    probe_every: int
    start: int = 0
    steps: int = 3


KINDS = (
    Kind(SCALARS, _NEVER, _NEVER),
    Kind(LAYERS, 1, _NEVER),
    Kind(OUTPUT, 1, 1),
    # Comes in every tenth step alone.
    Kind(BLOCKS, 1, 1, start=PROBES_PER_BLOCK_READING - 2, steps=1),
)


def overhead(pairs: int, size: Size, as_json: bool) -> None:
    """Measure and show; with `as_json` the last line of stdout is the result, and the rest goes to stderr.

    ValueError: fewer than one pair.
    """
    if pairs < 1:
        raise ValueError(f"pairs is {pairs}; give at least 1, and 10 or more for a spread")
    console = Console(stderr=as_json)
    with console.status("") as status:
        costs = measure(pairs, Training(size), lambda done: status.update(f"measured {done} of {pairs} times"))
    found = rows(costs)
    off = statistics.median(pair.off for cost in costs.values() for pair in cost.pairs)
    show(console, size, found, off)
    if as_json:
        sys.stdout.write(json.dumps({"rows": [asdict(row) for row in found]}) + "\n")


def measure(pairs: int, training: Training, told: Callable[[int], None] = lambda done: None) -> Mapping[Due, Cost]:
    """Every kind `pairs` times, all kinds in turn; every other time the half with stabmon comes first."""
    found: dict[Due, list[Pair]] = {kind.due: [] for kind in KINDS}
    with tempfile.TemporaryDirectory() as name, one_thread(training.device), own_settings(), failures_raised():
        folder = Path(name)
        waits = {kind.due: _waits(kind, training, folder) for kind in KINDS}
        for number in range(pairs):
            told(number)
            for kind in KINDS:
                found[kind.due].append(_pair(kind, training, folder, off_first=number % 2 == 0))
    return {due: Cost(measured, waits[due]) for due, measured in found.items()}


def _pair(kind: Kind, training: Training, folder: Path, off_first: bool) -> Pair:
    if off_first:
        off = _without(kind, training)
        on, host = _with(kind, training, folder)
    else:
        on, host = _with(kind, training, folder)
        off = _without(kind, training)
    return Pair(off, on, host)


def _without(kind: Kind, training: Training) -> float:
    """Seconds per step. Each half of a pair begins with a step that is not measured."""
    training.step()
    return _timed(kind, training, None)


def _with(kind: Kind, training: Training, folder: Path) -> tuple[float, float]:
    """Seconds per step, and host seconds of them inside stabmon."""
    with watch(kind, training, folder) as monitor:
        training.step(monitor)
        before = hooks.spent.seconds
        seconds = _timed(kind, training, monitor)
        return seconds, (hooks.spent.seconds - before) / kind.steps


def _timed(kind: Kind, training: Training, monitor: Monitor | None) -> float:
    started = now(training.device)
    for _ in range(kind.steps):
        training.step(monitor)
    return (now(training.device) - started) / kind.steps


def _waits(kind: Kind, training: Training, folder: Path) -> int:
    """Device waits in one step."""
    with watch(kind, training, folder) as monitor:
        training.step(monitor)
        with counting(training.device) as waits:
            training.step(monitor)
    return waits.count


def watch(kind: Kind, training: Training, folder: Path) -> Monitor:
    """As a user has it by default, with run log and server."""
    return Monitor(
        training.model,
        training.optimizer,
        every=kind.every,
        probe_every=kind.probe_every,
        dense_steps=0,
        start_step=kind.start,
        folder=Path(tempfile.mkdtemp(dir=folder)),
        port=0,
    )
