"""The same training twice: watched by stabmon, and read naively. What both saw, and whether both ended alike."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from stabmon import Monitor
from stabmon.records import PART_FAILED, Snapshot
from tests.trainings import Keep, watched

EXACT = 1e-5
Squares = dict[str, float]
"""Sum of squares, in float64, by name of the parameter."""


class Witness(Protocol):
    """Told by a loop what it does."""

    def forward(self) -> AbstractContextManager[object]:
        """Around a forward that is a training one."""
        ...

    def gradients(self, scale: float = 1.0, part: str = "") -> None:
        """They are complete, neither clipped nor unscaled; `part`: of the parameters whose names begin so."""
        ...

    def step(self, loss: Tensor | None = None, targets: Tensor | None = None) -> None:
        """The optimizer step is over."""
        ...


Attach = Callable[[nn.Module, Sequence[Optimizer]], Witness]
Loop = Callable[[Attach], object]


@dataclass
class Step:
    """What a naive reader saw of one step."""

    gradients: Squares = field(default_factory=dict)
    weights: Squares = field(default_factory=dict)
    updates: Squares = field(default_factory=dict)
    inputs: dict[str, list[tuple[float, int]]] = field(default_factory=dict)
    """Norm -> (sum of squares, number of values) of the input of each call."""
    loss: float = float("nan")


class Naive:
    """Reads all in float64: `.grad` where the loop says so, parameters after each step, norm inputs."""

    def __init__(self, model: nn.Module, optimizers: Sequence[Optimizer]) -> None:
        self.model, self.optimizers = model, optimizers
        held = {id(p) for o in optimizers for group in o.param_groups for p in group["params"]}
        self._parameters = {n: p for n, p in model.named_parameters() if p.requires_grad and id(p) in held}
        self._before = self._copies()
        self._open = False
        self._counts_from_second = getattr(model, "reads_tokens", False)
        """The first of a sequence of token ids does not count in means."""
        self._step = Step()
        self.steps: list[Step] = []
        for name, module in model.named_modules():
            if isinstance(module, nn.LayerNorm | nn.RMSNorm | nn.GroupNorm | nn.BatchNorm2d):
                module.register_forward_pre_hook(self._hook(name))

    def _hook(self, name: str) -> Callable[..., None]:
        def hook(module: nn.Module, args: tuple[Tensor]) -> None:
            if self._open:
                x = args[0].detach().double()
                x = x[:, 1:] if self._counts_from_second else x
                self._step.inputs.setdefault(name, []).append((float(x.square().sum()), x.numel()))

        return hook

    def _copies(self) -> dict[str, Tensor]:
        return {name: p.detach().double().clone() for name, p in self._parameters.items()}

    @contextmanager
    def forward(self) -> Iterator[None]:
        self._open = True
        yield
        self._open = False

    def gradients(self, scale: float = 1.0, part: str = "") -> None:
        present = {name: p.grad for name, p in self._parameters.items() if p.grad is not None}
        squares = {name: _square(g.detach()) / scale**2 for name, g in present.items() if name.startswith(part)}
        self._step.gradients = self._step.gradients | squares if part else squares

    def step(self, loss: Tensor | None = None, targets: Tensor | None = None) -> None:
        after, before = self._copies(), self._before
        self._step.weights = {name: _square(value) for name, value in before.items()}
        self._step.updates = {name: _square(after[name] - before[name]) for name in before}
        self._step.loss = float("nan") if loss is None else float(loss.detach())
        self.steps.append(self._step)
        self._before, self._step = after, Step()


class Watched:
    """stabmon, which is told of the step alone."""

    def __init__(self, folder: Path, model: nn.Module, optimizers: Sequence[Optimizer], **settings: Any) -> None:
        self.model, self.optimizers = model, optimizers
        self.kept = Keep()
        self.monitor = Monitor(model, list(optimizers), **{**watched(folder, self.kept), "every": 1, **settings})

    def forward(self) -> AbstractContextManager[object]:
        return nullcontext()

    def gradients(self, scale: float = 1.0, part: str = "") -> None: ...

    def step(self, loss: Tensor | None = None, targets: Tensor | None = None) -> None:
        self.monitor.step(loss, targets)


@dataclass(frozen=True)
class Both:
    """The two trainings of a loop."""

    naive: Naive
    watched: Watched

    @property
    def pairs(self) -> list[tuple[Step, Snapshot]]:
        return list(zip(self.naive.steps, self.watched.kept.snapshots, strict=True))


def both(loop: Loop, folder: Path, **settings: Any) -> Both:
    """Run it twice from the same random state, and hold that the end is the same, bit for bit."""
    found: list[Any] = []
    ends = []
    for attach in (Naive, lambda *given: Watched(folder, *given, **settings)):

        def keeping(*given: Any, attach: Callable[..., Any] = attach) -> Any:
            found.append(attach(*given))
            return found[-1]

        seed()
        loop(keeping)
        ends.append(state(found[-1].model, found[-1].optimizers))
    naive, watching = found
    watching.monitor.close()
    failed = [event for event in watching.kept.events if event.kind == PART_FAILED]
    assert failed == []
    assert_same(*ends)
    return Both(naive, watching)


def seed() -> None:
    torch.manual_seed(0)
    random.seed(0)
    np.random.seed(0)


def state(model: nn.Module, optimizers: Sequence[Any]) -> list[Any]:
    """Parameters, buffers, gradients, optimizer states, random states."""
    tensors = [*model.parameters(), *model.buffers(), *(p.grad for p in model.parameters())]
    generators = [torch.get_rng_state(), random.getstate(), np.random.get_state()]
    return [
        [None if t is None else t.detach().clone() for t in tensors],
        [o.state_dict() for o in optimizers],
        generators,
    ]


def assert_same(one: Any, other: Any) -> None:
    """Bit for bit, through lists and mappings."""
    if isinstance(one, Tensor):
        assert one.shape == other.shape
        assert torch.allclose(one, other, rtol=0, atol=0, equal_nan=True)
    elif isinstance(one, Mapping):
        assert one.keys() == other.keys()
        assert_same(list(one.values()), list(other.values()))
    elif isinstance(one, list | tuple):
        assert len(one) == len(other)
        for a, b in zip(one, other, strict=True):
            assert_same(a, b)
    elif isinstance(one, np.ndarray):
        np.testing.assert_array_equal(one, other)
    else:
        assert one == other


def assert_read_right(found: Both, relative: float = EXACT, norms: bool = True) -> None:
    """Gradients, weights, updates, norm inputs and losses of every step, to the given relative error."""
    assert found.naive.steps
    for naive, snapshot in found.pairs:
        squares = {"grad_sq": naive.gradients, "weight_sq": naive.weights, "update_sq": naive.updates}
        for statistic, expected in squares.items():
            hold(snapshot, statistic, by_site(snapshot, statistic), summed(snapshot, statistic, expected), relative)
        total = {"": snapshot.scalar("total_grad_sq")}
        hold(snapshot, "total_grad_sq", total, {"": sum(naive.gradients.values())}, relative)
        if norms:
            means = {name: sum(s for s, _ in calls) / sum(n for _, n in calls) for name, calls in naive.inputs.items()}
            hold(snapshot, "norm_input_msq", by_site(snapshot, "norm_input_msq"), means, relative)
        if not np.isnan(naive.loss):
            hold(snapshot, "loss", {"": snapshot.scalar("loss")}, {"": naive.loss}, relative)


def hold(snapshot: Snapshot, statistic: str, found: Squares, expected: Squares, relative: float) -> None:
    """AssertionError that names what differs."""
    wanted = {name: value if np.isfinite(value) or np.isnan(value) else np.inf for name, value in expected.items()}
    if found != pytest.approx(wanted, rel=relative, nan_ok=True):
        raise AssertionError(f"{statistic} at step {snapshot.step}: {found}, naively {wanted}")


def by_site(snapshot: Snapshot, statistic: str) -> Squares:
    sites = snapshot.layout.sites_of(statistic)
    return {site.name: float(v) for site, v in zip(sites, snapshot[statistic], strict=True)}


def summed(snapshot: Snapshot, statistic: str, squares: Squares) -> Squares:
    """Per-parameter squares, added by the block whose name they begin with; each parameter counts once."""
    sites = sorted((site.name for site in snapshot.layout.sites_of(statistic)), key=len, reverse=True)
    sums = dict.fromkeys(sites, float("nan"))
    for name, value in squares.items():
        site = next(site for site in sites if name == site or name.startswith(f"{site}."))
        sums[site] = value if np.isnan(sums[site]) else sums[site] + value
    return sums


def _square(tensor: Tensor) -> float:
    found = float(tensor.double().square().sum())
    return found if np.isfinite(found) else float("inf")
