"""`stabmon bench ranks`: what several processes read together, against one process that sees all of it."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from stabmon.bench.ranks.modes import MODES, Mode
from stabmon.bench.ranks.processes import on_ranks
from stabmon.bench.ranks.training import COUNTED, SAMPLED, STEPS, Outcome, Values, reference, spread

TOLERANCE = 1e-5
ALL = {
    2: [name for name in MODES if name not in ("hsdp", "fsdp2_tp", "pipeline_fsdp2")],
    4: [
        "ddp",
        "ddp_no_sync",
        "fsdp2",
        "fsdp2_bf16",
        "hsdp",
        "tensor_parallel",
        "fsdp2_tp",
        "pipeline",
        "pipeline_fsdp2",
    ],
}
_OWN = {
    "step_seconds": "rank 0's own clock",
    "monitor_seconds": "rank 0's own clock",
    "eval_loss": "rank 0's own",
    "uniform_loss": "of rank 0's targets",
    "unigram_loss": "of rank 0's targets",
    "bigram_loss": "of rank 0's targets",
    "class_mean_loss": "of rank 0's targets",
    "pretrained": "found on rank 0",
}
_SCALE = {"logit_mean": "logit_max"}
"""Means of both signs, near 0: relative to the size of what the mean is of."""
_PART = "of each rank's part of the sequence, not of the whole"
_FIRST = "the first token counts too, since it isn't known which part of the sequence a plain tensor is"
_UNREAD = "without the norms' and embedding's parameters, whose gradients are laid out otherwise"
_OF_A_PART = {
    **dict.fromkeys(("token_similarity", "context_share"), _PART),
    **dict.fromkeys(("branch_msq", "trunk_msq", "branch_cosine"), _FIRST),
    **dict.fromkeys(("rms_t_msq", "adam_update_msq", "epsilon_share"), _UNREAD),
}
"""What is another number where norms see a part of the sequence each."""


@dataclass(frozen=True, slots=True)
class Line:
    """One statistic in one mode: its worst relative error over layers and sampled steps."""

    mode: str
    processes: int
    statistic: str
    relative_error: float | None
    """None: not read there, or nothing to compare with."""
    tolerance: float
    collectives_per_sample: int
    collectives_otherwise: int
    note: str

    @property
    def right(self) -> bool:
        return self.relative_error is None or self.relative_error <= self.tolerance


def ranks(modes: Sequence[str] | None, processes: Sequence[int], level: str, as_json: bool) -> bool:
    """Print the table, its JSON last where asked for; whether every line is within its tolerance."""
    lines = [line for world in processes for line in measure(world, modes or ALL[world], level)]
    Console(file=sys.stderr if as_json else sys.stdout).print(_table(lines))
    if as_json:
        sys.stdout.write(json.dumps({"rows": [asdict(line) for line in lines]}) + "\n")
    return all(line.right for line in lines)


def measure(world: int, modes: Sequence[str], level: str) -> list[Line]:
    """All modes in one set of processes, then each one's reference in one."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        outcomes = on_ranks(world, folder / "ranks", partial(_on_rank, modes, level))
        found = []
        for number, name in enumerate(modes):
            mode = MODES[name]
            expected = _expected(mode, world, level, folder / f"one-{number}")
            found += compare(mode, world, [outcome[number] for outcome in outcomes], expected)
        return found


def _on_rank(modes: Sequence[str], level: str, folder: Path) -> list[Outcome]:
    return [spread(MODES[name], level, folder / name) for name in modes]


def _expected(mode: Mode, world: int, level: str, folder: Path) -> Values:
    """One process. Each rank's probe is its own first batch, so where there is one, every rank's is first in turn."""
    parts = mode.parts(world)
    if mode.name.endswith("bf16"):
        return on_ranks(1, folder, partial(_one_sharded, mode.name, world, level))[0]
    firsts = range(0, len(parts), mode.micro) if mode.name.startswith("ddp") else [0]
    turns = [reference(mode, parts[first:] + parts[:first], level, folder) for first in firsts]
    return {key: np.mean([turn[key] for turn in turns], axis=0).tolist() for key in turns[0]}


def _one_sharded(name: str, world: int, level: str, folder: Path) -> Values:
    """Mixed precision is FSDP's own, so one process shards over itself."""
    mode = MODES[name]
    return reference(mode, mode.parts(world), level, folder, mode.wrap)


def compare(mode: Mode, world: int, outcomes: Sequence[Outcome], expected: Values) -> list[Line]:
    """A line for each statistic, and one for the training itself."""
    sampled, others = (
        max(outcome.collectives[step] - outcome.alone[step] for outcome in outcomes) for step in COUNTED.values()
    )
    line = partial(Line, mode.name, world, collectives_per_sample=sampled, collectives_otherwise=others)
    identical = all(outcome.identical for outcome in outcomes)
    found = [line("parameters", 0.0 if identical else 1.0, 0.0, note="bit for bit those without stabmon, all ranks")]
    values = outcomes[0].values
    for statistic in dict.fromkeys(name for name, _ in expected):
        worst, unread = _worst(statistic, values, expected)
        other = _OWN.get(statistic) or (_OF_A_PART.get(statistic, "") if mode.split else "")
        found.append(line(statistic, None if other else worst, TOLERANCE, note=other or unread or mode.note))
    return found


def _worst(statistic: str, values: Values, expected: Values) -> tuple[float | None, str]:
    """The largest relative error over sites and sampled steps, and what is to be said of it."""
    errors: list[float] = []
    missing = 0
    for key in (key for key in expected if key[0] == statistic):
        for step in SAMPLED:
            is_, should = values.get(key, [float("nan")] * STEPS)[step - 1], expected[key][step - 1]
            if np.isnan(should):
                continue
            if np.isnan(is_):
                missing += 1
            else:
                scale = expected.get((_SCALE.get(statistic, ""), key[1]), [0.0] * STEPS)[step - 1]
                errors.append(abs(is_ - should) / max(abs(should), abs(scale), 1e-12))
    if missing:
        return (max(errors), "partly not read") if errors else (None, "not read")
    return (max(errors), "") if errors else (None, "not taken in one process either")


def _table(lines: Iterable[Line]) -> Table:
    table = Table("processes", "mode", "statistic", "relative error", "tolerance", "note")
    for line in lines:
        error = "" if line.relative_error is None else f"{line.relative_error:.1e}"
        style = None if line.right else "bold red"
        table.add_row(
            str(line.processes), line.mode, line.statistic, error, f"{line.tolerance:g}", line.note, style=style
        )
    return table
