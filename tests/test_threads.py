"""Two trainings in two threads of one process, each with a Monitor, whose probes are made to meet."""

from threading import Event, Thread

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from stabmon import Monitor

STEPS = 30


class Meeting(nn.Module):
    """A model that waits for the other's probe in its own first one."""

    def __init__(self, probed: Event, other: Event) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Embedding(50, 16), nn.LayerNorm(16), nn.Linear(16, 16), nn.Linear(16, 50))
        self._probed, self._other = probed, other

    def forward(self, x: Tensor) -> Tensor:
        if not self.training and not self._probed.is_set():
            self._probed.set()
            self._other.wait(0.5)
        y: Tensor = self.layers(x)
        return y


class Training:
    def __init__(self, seed: int, probed: Event, other: Event) -> None:
        torch.manual_seed(seed)
        self.model = Meeting(probed, other)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)
        self.batches = torch.Generator().manual_seed(seed)
        self.ready, self.stepped = Event(), Event()
        self.failed: list[BaseException] = []

    def go(self, monitor: Monitor | None) -> None:
        try:
            for _ in range(STEPS):
                self._step(monitor)
        except BaseException as error:
            self.failed.append(error)
            raise

    def _step(self, monitor: Monitor | None) -> None:
        x = torch.randint(0, 50, (8, 16), generator=self.batches)
        y = (x * 7 + 3) % 50
        loss = F.cross_entropy(self.model(x).flatten(0, 1), y.flatten())
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.ready.wait(10)
        if monitor is not None:
            monitor.step(loss, targets=y)
        self.stepped.set()


def trained(watched: bool) -> tuple[list[Tensor], list[str]]:
    """Parameters of both, and what was told. The second is probed in the middle of the first one's first probe, and
    is still in its own when the first one's step is over, as far as they let each other."""
    probed = Event(), Event()
    first = Training(0, probed[0], probed[1])
    second = Training(1, probed[1], first.stepped)
    first.ready.set()
    second.ready = probed[0] if watched else first.ready
    both = (first, second)
    monitors = [Monitor(t.model, t.optimizer, serve=False, log=False) if watched else None for t in both]
    threads = [Thread(target=t.go, args=(m,)) for t, m in zip(both, monitors, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    told = [alert.message for m in monitors if m is not None for alert in m.alerts]
    for monitor in monitors:
        if monitor is not None:
            monitor.close()
    assert not any(t.failed for t in both)
    assert not watched or all(event.is_set() for event in probed)
    return [p.detach() for t in both for p in t.model.parameters()], told


def test_they_tell_nothing_and_train_as_without_monitors() -> None:
    without, _ = trained(watched=False)
    fastpath = torch.backends.mha.get_fastpath_enabled()
    watched, told = trained(watched=True)
    assert told == []
    assert all(torch.equal(one, other) for one, other in zip(without, watched, strict=True))
    assert torch.backends.mha.get_fastpath_enabled() == fastpath
