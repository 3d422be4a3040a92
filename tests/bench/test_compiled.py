from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from stabmon import Monitor
from stabmon.bench import compiled
from stabmon.bench.ranks.network import Network, batch, loss_of
from stabmon.records import Snapshot

pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
SETTINGS: dict[str, Any] = {"serve": False, "log": False, "every": 3, "probe_every": 6, "dense_steps": 2}


@contextmanager
def graphs_made() -> Iterator[Any]:
    """A backend that counts."""
    torch._dynamo.reset()

    def backend(graph: torch.fx.GraphModule, inputs: list[Tensor]) -> Any:
        backend.count += 1  # type: ignore[attr-defined]
        return torch._dynamo.lookup_backend("aot_eager")(graph, inputs)

    backend.count = 0  # type: ignore[attr-defined]
    yield backend
    torch._dynamo.reset()


def train(way: str, level: str | None, backend: Any) -> tuple[Monitor | None, list[Tensor]]:
    network = Network()
    network.blocks = network.blocks[:2]
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-2)

    def step(x: Tensor, y: Tensor) -> Tensor:
        return loss_of(network(x), y)

    call = torch.compile(step, backend=backend, fullgraph=True) if way == "with its loss" else step
    compile_parts(network, way, backend)
    monitor = None if level is None else Monitor(network, optimizer, level=level, **SETTINGS)
    for number in range(6):
        loss = torch.zeros(())
        for x, y in zip(*(rows.chunk(2) for rows in batch(number)), strict=True):
            loss = call(x, y)
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if monitor is not None:
            monitor.step(loss)
    if monitor is not None:
        monitor.close()
    return monitor, [p.detach().clone() for p in network.parameters()]


def compile_parts(network: Network, way: str, backend: Any) -> None:
    if way == "block by block":
        for block in network.blocks:
            block.compile(backend=backend, fullgraph=True)
    elif way not in ("with its loss", "eager"):
        network.compile(backend=backend, fullgraph=True)


def latest(monitor: Monitor | None) -> Snapshot:
    assert monitor is not None
    assert monitor.latest is not None
    return monitor.latest


@pytest.mark.parametrize(
    ("way", "level"), [("in place", "deep"), ("block by block", "standard"), ("with its loss", "light")]
)
def test_a_watched_model_has_one_graph_more_and_reads_the_same(way: str, level: str) -> None:
    with graphs_made() as backend:
        _, alone = train(way, None, backend)
        before = backend.count
    with graphs_made() as backend:
        monitor, watched = train(way, level, backend)
    assert backend.count == before + 1 == 2
    assert all(torch.equal(a, b) for a, b in zip(alone, watched, strict=True))
    eager, _ = train("eager", level, backend)
    one, other = latest(eager), latest(monitor)
    unseen = {site.name for site in one.layout.sites} - {site.name for site in other.layout.sites}
    assert unseen <= {f"blocks.{i}.attn" for i in range(2)}
    if way == "with its loss":  # where the probe is the last micro-batch of a step, not the first
        for statistic in ("norm_input_msq", "norm_gain", "token_similarity", "context_share", "grad_sq"):
            np.testing.assert_allclose(other[statistic], one[statistic], rtol=1e-5)
    else:
        assert compiled.worst([one], [other]) < 1e-5


def test_a_late_monitor_sees_every_layer_in_eager_steps_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    torch._dynamo.reset()
    network = Network()
    network.blocks = network.blocks[:2]
    network.compile(backend="eager")
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-2)
    loss_of(network(batch(0)[0]), batch(0)[1]).backward()
    with Monitor(network, optimizer, **SETTINGS) as monitor:
        for number in range(3):
            x, y = batch(number)
            loss = loss_of(network(x), y)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            monitor.step(loss)
    assert monitor.latest is not None
    assert (monitor.latest.step, len(monitor.latest["norm_input_msq"])) == (3, 5)
    assert (monitor.latest["norm_input_msq"] > 0).all()
    told = [r.getMessage() for r in caplog.records if "the graphs do not know of it" in r.getMessage()]
    assert len(told) == 1
    assert torch._dynamo.eval_frame._stance.stance == "default"
