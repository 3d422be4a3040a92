"""`stabmon bench estimator`: how exact the output change is, estimated or not, against exact derivatives in float64."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass
from math import sqrt

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

from stabmon.bench.clock import one_thread
from stabmon.bench.one_update import Parameters, Update, one_update, rms
from stabmon.demo.network import Network
from stabmon.demo.text import VOCABULARY
from stabmon.taps.probe.cotangents import Cotangents
from stabmon.taps.probe.divergence import kl_divergence
from stabmon.taps.probe.fitting import fit
from stabmon.taps.probe.probe import Answer, Probe

COUNTS = (1, 2, 4, 8, 16, 32)
RATES = (1e-3, 1e-5, 1e-6)
MEASURED = "estimate against exact derivative"
_SHAPE, _STEPS, _KL_COUNT = (1, 65), 20, 16


@dataclass(frozen=True, slots=True)
class Row:
    """Relative errors of one way to tell the RMS output change (or KL) of blocks or of the whole update."""

    what: str
    quantity: str
    placement: str
    lr: float
    cotangents: int | None
    median: float
    p90: float
    rms: float
    theory: float | None
    """Standard error that is told of it."""
    samples: int


def estimator(draws: int, as_json: bool) -> None:
    """Measure and show; with `as_json` the last line of stdout is the result, and the rest goes to stderr.

    ValueError: fewer draws than the largest number of cotangents.
    """
    if draws < max(COUNTS):
        raise ValueError(f"draws is {draws}; give at least {max(COUNTS)}, and 300 or more for a spread")
    console = Console(stderr=as_json)
    with console.status("two networks, about a minute"), one_thread(torch.device("cpu")):
        found = [row for placement in ("pre", "post") for row in rows(placement, _network(placement), draws)]
    _show(console, found)
    if as_json:
        sys.stdout.write(json.dumps({"rows": [asdict(row) for row in found]}) + "\n")


def rows(placement: str, network: nn.Module, draws: int) -> Iterator[Row]:
    """All of one network."""
    torch.manual_seed(0)
    tokens = torch.randint(VOCABULARY, _SHAPE)
    made = one_update(network, tokens, RATES[0], _STEPS)
    row = _Rows(placement, made.scaled_to(RATES[1], RATES[0]))
    yield from row.by_count(draws)
    yield from row.kl(draws // 2)
    for lr in RATES:
        yield from _Rows(placement, made.scaled_to(lr, RATES[0])).by_precision(lr)


def _network(placement: str) -> nn.Module:
    torch.manual_seed(0)
    return Network(placement)


class _Rows:
    def __init__(self, placement: str, update: Update) -> None:
        self._placement = placement
        self._update = update
        self._probe = fit(update.model, update.call)

    def by_count(self, draws: int) -> Iterator[Row]:
        """How the error falls with the number of cotangents."""
        update, cotangents = self._update, Cotangents(self._update.blocks, draws)
        dots = self._probe(update.before, lambda answer: cotangents.dots(answer, update.after, 0)).double()
        exact = torch.tensor([rms(update.derivative(names)) for names in update.blocks])
        whole = rms(update.derivative(update.before))
        for count in COUNTS:
            groups = dots[: draws // count * count].unflatten(0, (-1, count))
            per_block = groups.square().mean(1).sqrt() / exact
            total = groups.sum(2).square().mean(1).sqrt() / whole
            for quantity, ratio in (("block", per_block), ("whole", total)):
                yield self._row(MEASURED, quantity, RATES[1], ratio, count, 1 / sqrt(2 * count))

    def kl(self, draws: int) -> Iterator[Row]:
        """Single estimates and the mean of all, against the exact divergence."""
        update, cotangents = self._update, Cotangents(self._update.blocks, _KL_COUNT)

        def look(answer: Answer) -> list[Tensor | None]:
            return [cotangents.estimate(answer, update.after, seed).kl for seed in range(draws // _KL_COUNT)]

        old = update.logits(update.before)
        exact = kl_divergence(old, update.logits(update.after) - old)
        ratio = torch.stack([kl.double() / exact for kl in self._probe(update.before, look) if kl is not None])
        for samples, count in ((ratio, _KL_COUNT), (ratio.mean().reshape(1), _KL_COUNT * len(ratio))):
            yield self._row("estimate against exact divergence", "KL", RATES[1], samples, count, sqrt(2 / count))

    def by_precision(self, lr: float) -> Iterator[Row]:
        """What rounding does to finite differences and to estimates."""
        update = self._update
        sets = [*update.blocks, list(update.before)]
        swaps = torch.tensor([rms(update.swapped(names)) for names in sets])
        derivatives = torch.tensor([rms(update.derivative(names)) for names in sets])
        rounded = Probe(_Rounded(update.model), update.call)
        halves = _halves(update)
        stored = torch.tensor([rms(halves.swapped(names)) for names in sets])
        ways: dict[str, Tensor] = {
            "difference in float32": _swaps(self._probe, update, sets) / swaps,
            "difference in bfloat16": _swaps(rounded, update, sets, "network.") / swaps,
            "estimate in bfloat16 against float32": _estimates(rounded, update, "network.")
            / _estimates(self._probe, update),
            "difference in float32 of bfloat16 weights": _swaps(
                fit(deepcopy(update.model).bfloat16(), update.call), halves, sets
            )
            / stored,
            "exact difference against exact derivative": swaps / derivatives,
        }
        for what, ratio in ways.items():
            yield self._row(what, "block", lr, ratio[:-1])
            yield self._row(what, "whole", lr, ratio[-1:])

    def _row(
        self, what: str, quantity: str, lr: float, ratio: Tensor, count: int | None = None, theory: float | None = None
    ) -> Row:
        errors = (ratio.double() - 1).abs().flatten().numpy()
        median, high = (float(q) for q in np.quantile(errors, (0.5, 0.9)))
        return Row(
            what,
            quantity,
            self._placement,
            lr,
            count,
            median,
            high,
            float(sqrt((errors**2).mean())),
            theory,
            len(errors),
        )


class _Rounded(nn.Module):
    """The network under bfloat16 autocast, where the probe does not switch it off."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, tokens: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            logits: Tensor = self.network(tokens)
        return logits.float()


def _swaps(probe: Probe, update: Update, sets: Sequence[Sequence[str]], prefix: str = "") -> Tensor:
    """RMS changes as the probe's differences tell them, float64[set]."""

    def outputs(parameters: Parameters) -> Tensor:
        z = probe({prefix + name: value for name, value in parameters.items()}, lambda answer: answer.z)
        assert z is not None
        return z.detach()

    old = outputs(update.before)
    moved = ({**update.before, **{name: update.after[name] for name in names}} for names in sets)
    return torch.tensor([rms(outputs(parameters) - old) for parameters in moved])


def _estimates(probe: Probe, update: Update, prefix: str = "") -> Tensor:
    """RMS changes by four cotangents, of each block and of the whole, float64[set]."""
    cotangents = Cotangents([[prefix + name for name in names] for names in update.blocks])
    toward = {prefix + name: value for name, value in update.after.items()}

    def look(answer: Answer) -> Tensor:
        dots = cotangents.dots(answer, toward, 0).double()
        return torch.cat((dots, dots.sum(1, keepdim=True)), 1).square().mean(0).sqrt()

    return probe({prefix + name: value for name, value in update.before.items()}, look)


def _halves(update: Update) -> Update:
    """What is left of the update in weights that are stored in bfloat16."""
    before, after = ({n: v.bfloat16() for n, v in values.items()} for values in (update.before, update.after))
    return Update(update.model, update.call, before, after)


def _show(console: Console, found: Sequence[Row]) -> None:
    table = Table(
        "what", "of", "model", "lr", "k", "median", "p90", "rms", "theory", "samples", box=None, pad_edge=False
    )
    for row in found:
        told = "" if row.theory is None else f"{row.theory:.3f}"
        count = "" if row.cotangents is None else str(row.cotangents)
        errors = (f"{error:.2g}" for error in (row.median, row.p90, row.rms))
        table.add_row(row.what, row.quantity, row.placement, f"{row.lr:g}", count, *errors, told, str(row.samples))
    console.print(table)
    console.print("Relative errors. A whole has one sample in each row without k.", highlight=False)
