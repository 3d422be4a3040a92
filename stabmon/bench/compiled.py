"""`stabmon bench compiled`: what torch.compile makes of a watched model: graphs, graph breaks, and the values read."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
import transformers
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn
from torch._dynamo.utils import counters

from stabmon.bench.clock import one_thread
from stabmon.bench.isolation import failures_raised, own_settings
from stabmon.monitor import Monitor
from stabmon.records import Snapshot

STEPS, EVERY, DENSE, LATE = 9, 3, 2, 2
TOLERANCE = 1e-5
BACKENDS = ("aot_eager", "inductor")
EXACT = "aot_eager"
"""Rounds as eager kernels do. With another the two trainings part at their first update, since Adam's steps are as
large for a gradient that is nothing but rounding: values are compared before that."""
_OWN = ("step_seconds", "monitor_seconds", "uniform_loss", "unigram_loss", "bigram_loss", "class_mean_loss")
"""Clocks, and counts of the tokens seen so far, of which a late Monitor has one step less."""
_SETTINGS: dict[str, Any] = {
    "serve": False,
    "log": False,
    "every": EVERY,
    "probe_every": EVERY,
    "dense_steps": DENSE,
}
_BATCH, _LENGTH, _VOCABULARY, _SIDE = 4, 32, 128, 32
_SIZE = {"hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4, "num_hidden_layers": 2}
_NOTES = {
    "without": "",
    "with": "",
    "late": "made after step 2; steps that are read run eagerly",
}


@dataclass(frozen=True, slots=True)
class Row:
    """One model, backend and time at which the Monitor was made."""

    model: str
    backend: str
    monitor: str
    level: str
    graphs: int
    breaks: int
    error: float | None
    """Largest relative error of a value that was read, against an eager training; None: there is none to compare."""
    identical: bool
    """Whether the parameters are those of the compiled training without stabmon, bit for bit."""
    note: str


@dataclass(frozen=True)
class _Run:
    graphs: int
    breaks: int
    weights: Tensor
    snapshots: Sequence[Snapshot]


def compiled(level: str, backends: Sequence[str], as_json: bool) -> bool:
    """Measure and show; returns whether there is at most one graph more, no break more, and no value that is wrong."""
    console = Console(stderr=as_json)
    with own_settings(), one_thread(torch.device("cpu")), console.status("three models, some minutes"):
        found = [row for name in MODELS for row in rows(name, level, backends)]
    _show(console, found)
    if as_json:
        sys.stdout.write(json.dumps({"rows": [asdict(row) for row in found]}) + "\n")
    return all(good(row, found) for row in found)


def good(row: Row, found: Sequence[Row]) -> bool:
    """Whether the row keeps what is promised beside that of the same training without stabmon."""
    bare = next(r for r in found if (r.model, r.backend, r.monitor) == (row.model, row.backend, "without"))
    right = row.error is None or row.error < TOLERANCE
    # A Monitor made late reads in eager steps, which other backends round otherwise.
    same = row.identical or (row.monitor == "late" and row.backend != EXACT)
    return row.graphs <= bare.graphs + 1 and row.breaks <= bare.breaks and right and same


def rows(name: str, level: str, backends: Sequence[str]) -> Iterator[Row]:
    """Of one model."""
    eager = {start: _run(name, level, None, start) for start in (0, LATE)}
    for backend in backends:
        bare = _run(name, level, backend, None)
        for monitor, start in (("without", None), ("with", 0), ("late", LATE)):
            run = bare if start is None else _run(name, level, backend, start)
            alike = [s for s in run.snapshots if backend == EXACT or s.step == 1]
            error = worst(eager[start].snapshots, alike) if start is not None and alike else None
            same = torch.equal(run.weights, bare.weights)
            yield Row(name, backend, monitor, level, run.graphs, run.breaks, error, same, _NOTES[monitor])


def worst(eager: Sequence[Snapshot], other: Sequence[Snapshot]) -> float:
    """Largest relative error of a value that both have read in the same step, relative to 1e-6 at least."""
    errors = [0.0]
    by_step = {snapshot.step: snapshot for snapshot in eager}
    for snapshot in other:
        held = dict(zip(by_step[snapshot.step].layout.columns, by_step[snapshot.step].values, strict=True))
        for column, value in zip(snapshot.layout.columns, snapshot.values, strict=True):
            expected = held.get(column, np.nan)
            if column[0] not in _OWN and np.isfinite(value) and np.isfinite(expected):
                errors.append(float(abs(value - expected) / max(abs(expected), 1e-6)))
    return max(errors)


def _run(name: str, level: str, backend: str | None, start: int | None) -> _Run:
    """`backend`: None = eager; `start`: the step after which the Monitor is made, None = never."""
    torch._dynamo.reset()
    counters.clear()
    torch.manual_seed(0)
    make, batch = MODELS[name]
    network, graphs, snapshots = make(), 0, []

    def counting(graph: torch.fx.GraphModule, inputs: list[Tensor]) -> Any:
        nonlocal graphs
        graphs += 1
        return torch._dynamo.lookup_backend(str(backend))(graph, inputs)

    call = network if backend is None else torch.compile(network, backend=counting)
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-3)
    monitor: Monitor | None = None
    with failures_raised():
        for step in range(STEPS):
            if step == start:
                monitor = Monitor(network, optimizer, start_step=step, level=level, **_SETTINGS)
            loss = call(**batch(torch.Generator().manual_seed(step))).loss
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            if monitor is not None:
                monitor.step(loss)
                snapshots += [monitor.latest] if monitor.latest is not None else []
        if monitor is not None:
            monitor.close()
    breaks = sum(counters["graph_break"].values())
    weights = torch.cat([p.detach().flatten() for p in network.parameters()])
    return _Run(graphs, breaks, weights, snapshots)


def _words(generator: torch.Generator) -> dict[str, Any]:
    ids = torch.randint(_VOCABULARY, (_BATCH, _LENGTH), generator=generator)
    return {"input_ids": ids, "labels": ids, "use_cache": False}


def _pictures(generator: torch.Generator) -> dict[str, Any]:
    return {
        "pixel_values": torch.randn(_BATCH, 3, _SIDE, _SIDE, generator=generator),
        "labels": torch.randint(10, (_BATCH,), generator=generator),
    }


def _gpt2() -> nn.Module:
    quiet = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    sizes = {"n_layer": 2, "n_embd": 64, "n_head": 4, "vocab_size": _VOCABULARY, "n_positions": 64}
    made: nn.Module = transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes, **quiet))
    return made


def _llama() -> nn.Module:
    config = transformers.LlamaConfig(**_SIZE, num_key_value_heads=2, vocab_size=_VOCABULARY)
    made: nn.Module = transformers.LlamaForCausalLM(config)
    return made


def _vit() -> nn.Module:
    quiet = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    config = transformers.ViTConfig(**_SIZE, **quiet, image_size=_SIDE, patch_size=8, num_labels=10)
    made: nn.Module = transformers.ViTForImageClassification(config)
    return made


MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[torch.Generator], dict[str, Any]]]] = {
    "GPT-2": (_gpt2, _words),
    "Llama": (_llama, _words),
    "ViT": (_vit, _pictures),
}


def _show(console: Console, found: Sequence[Row]) -> None:
    heads = ("model", "backend", "stabmon", "level", "graphs", "breaks", "error", "identical", "note")
    table = Table(*heads, box=None, pad_edge=False)
    for row in found:
        error = "" if row.error is None else f"{row.error:.1e}"
        same = "" if row.monitor == "without" else "yes" if row.identical else "no"
        table.add_row(
            row.model, row.backend, row.monitor, row.level, str(row.graphs), str(row.breaks), error, same, row.note
        )
    console.print(table)
    console.print(
        f"{STEPS} steps, read in the first {DENSE} and every {EVERY}rd; error: the largest relative one of any value "
        f"against an eager training, with another backend than {EXACT} in the first step alone, before rounding takes "
        "the trainings apart; identical: parameters, against the compiled training without stabmon.",
        highlight=False,
    )
