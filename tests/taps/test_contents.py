"""What a network holds in attributes of its own, and changes in place, is after a probe what it was before."""

import random
from collections import Counter, OrderedDict, defaultdict, deque
from operator import is_
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from stabmon import Monitor
from stabmon.taps.probe.contents import _restores
from stabmon.taps.probe.undisturbed import undisturbed


class Masker:
    """No module; draws from a generator of its own."""

    def __init__(self) -> None:
        self.random = np.random.RandomState(3)


class Bookkeeper(nn.Module):
    """Draws from its own generators and writes down what it sees, in eval mode too."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.generators = np.random.default_rng(1), random.Random(2), torch.Generator().manual_seed(4)
        self.masker = Masker()
        self.history: deque[float] = deque([1.0, 2.0], maxlen=2)
        self.by_name: dict[str, list[float]] = defaultdict(list)
        self.ordered: OrderedDict[str, int] = OrderedDict(a=1)
        self.counts: Counter[str] = Counter(calls=5)
        self.seen = {0}
        self.sums, self.array, self.nested = torch.zeros(2), np.zeros(2), [torch.zeros(1)]

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.linear(x) * (1 + 0.1 * self.drawn())
        mean = float(y.detach().mean())
        self.history.append(mean)
        self.by_name["mean"].append(mean)
        self.ordered[str(len(self.ordered))] = 2
        self.counts["calls"] += 1
        self.seen.add(len(self.seen))
        self.sums += 1
        self.array += 1
        self.nested[0].add_(1)
        return y * self.sums[0]

    def drawn(self) -> float:
        numpy, python, torch_ = self.generators
        drawn = torch.rand((), generator=torch_)
        return float(numpy.random() + python.random() + drawn + self.masker.random.rand())

    def state(self) -> list[Any]:
        numpy, python, torch_ = self.generators
        random_states = [numpy.bit_generator.state, python.getstate(), torch_.get_state().tolist()]
        place = repr(self.masker.random.get_state(legacy=False))
        held = [list(self.history), dict(self.by_name), list(self.ordered), dict(self.counts), set(self.seen)]
        arrays = [self.sums.tolist(), self.array.tolist(), self.nested[0].tolist()]
        return [*random_states, place, *map(repr, held), *arrays]


def test_generators_containers_and_arrays_of_every_kind_are_as_before() -> None:
    model = Bookkeeper()
    model(torch.randn(3, 4))
    before = model.state()
    with undisturbed(model):
        model(torch.randn(3, 4))
        changed = model.state()
    assert all(now != was for now, was in zip(changed, before, strict=True))
    assert model.state() == before


def test_a_training_that_draws_from_its_networks_own_generators_is_the_same_bit_for_bit(tmp_path: Path) -> None:
    def trained(watch: bool) -> list[Tensor]:
        torch.manual_seed(0)
        model = nn.Sequential(Bookkeeper(), nn.LayerNorm(4))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        monitor = Monitor(model, optimizer, folder=tmp_path, serve=False) if watch else None
        for _ in range(4):
            loss = model(torch.randn(3, 4)).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            if monitor:
                monitor.step(loss)
        if monitor:
            assert monitor.latest is not None
            assert monitor.latest.scalar("output_change_msq") > 0
            monitor.close()
        return [p.detach() for p in model.parameters()]

    assert all(map(torch.equal, trained(watch=True), trained(watch=False)))


class Agent(Bookkeeper):
    """With a memory of what it saw, and a large table."""

    def __init__(self) -> None:
        super().__init__()
        self.memory = deque((torch.zeros(3), np.zeros(3)) for _ in range(2000))
        self.table = torch.zeros(1 << 21)


def test_what_an_agent_remembers_is_not_copied() -> None:
    model = Agent()
    memory = list(model.memory)
    assert len(list(_restores(model))) == len(list(_restores(Bookkeeper()))) + 1
    with undisturbed(model):
        model.memory.append((torch.ones(3), np.ones(3)))
    assert len(model.memory) == len(memory)
    assert all(map(is_, model.memory, memory))
