"""A training is bit for bit the same with and without the output change being read, exactly or by estimates."""

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from stabmon import Monitor
from tests.trainings import Keep, watched


class Block(nn.Module):
    """Dropout, batch norm and layer norm, in a network of token ids."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.batch_norm = nn.LayerNorm(16), nn.BatchNorm1d(16)
        self.into, self.out, self.dropout = nn.Linear(16, 32), nn.Linear(32, 16), nn.Dropout(0.3)

    def forward(self, x: Tensor) -> Tensor:
        h = self.dropout(F.gelu(self.into(self.norm(x))))
        y: Tensor = x + self.out(h)
        return self.batch_norm(y.flatten(0, 1)).view_as(y)


class Half(nn.Module):
    """A layer that takes its weights in bfloat16 only, as quantized ones do: no float32 output, hence estimates."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(16, 16, dtype=torch.bfloat16)

    def forward(self, x: Tensor) -> Tensor:
        assert self.linear.weight.dtype == torch.bfloat16
        y: Tensor = self.linear(x.bfloat16()).to(x.dtype)
        return y


def network(*extra: nn.Module) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Embedding(32, 16), Block(), Block(), *extra, nn.LayerNorm(16), nn.Linear(16, 32))


def batches() -> Iterator[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(1)
    for _ in range(4):
        tokens = torch.randint(32, (4, 9), generator=generator)
        yield tokens[:, :-1], tokens[:, 1:]


def train(make: Callable[[], nn.Module], autocast: bool, settings: dict[str, Any] | None) -> list[Tensor]:
    """Parameters, buffers, Adam's state and the random state after two steps of two micro-batches each."""
    torch.manual_seed(2)
    model = make().train()
    torch.manual_seed(3)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    with Monitor(model, optimizer, **settings) if settings else nullcontext() as monitor:
        for number, (x, y) in enumerate(batches()):
            with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
                loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten())
            (loss / 2).backward()
            if number % 2:
                optimizer.step()
                optimizer.zero_grad()
                if monitor is not None:
                    monitor.step(loss, targets=y)
    state = [t for values in optimizer.state.values() for t in values.values()]
    return [*model.state_dict().values(), *state, torch.get_rng_state()]


@pytest.mark.parametrize(
    ("make", "autocast", "error"),
    [
        (network, False, 0.0),
        (network, True, 0.0),
        (lambda: network().bfloat16(), False, 0.0),
        (lambda: network(Half()), False, 8**-0.5),
    ],
    ids=["float32", "autocast", "bfloat16", "bfloat16 layer"],
)
def test_a_training_is_bit_identical_with_every_block_estimated(
    make: Callable[[], nn.Module], autocast: bool, error: float, tmp_path: Path
) -> None:
    sink = Keep()
    settings = {**watched(tmp_path, sink), "level": "standard", "log": False}
    alone, seen = train(make, autocast, None), train(make, autocast, settings)
    assert all(torch.equal(a, b) for a, b in zip(alone, seen, strict=True))
    first, second = sink.snapshots
    for snapshot in (first, second):
        assert snapshot.scalar("output_change_error") == pytest.approx(error)
        assert snapshot.scalar("total_output_change_ratio") > 0
        assert snapshot.scalar("output_change_kl") > 0
    # Blocks are read exactly at the first step, where that can be, and estimated at the second.
    assert first.scalar("block_output_change_error") == pytest.approx(error)
    assert second.scalar("block_output_change_error") == pytest.approx(8**-0.5)
    assert (second["output_change_ratio"] > 0).all()
