"""Lightning, optimized by hand: two optimizers, a clip of one's own, in the order of a GAN."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.data import DataLoader

from stabmon.lightning import StabilityCallback
from tests.frameworks import lightning_trainer
from tests.loops.recipe import STEPS
from tests.loops.test_any_model import Pair, noise
from tests.trainings import Keep, watched


class ByHand(pl.LightningModule):  # type: ignore[misc]  # lightning is not followed
    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.pair = Pair()
        self.seen: list[float] = []

    def training_step(self, batch: tuple[Tensor, Tensor], _: int) -> None:
        z, real = batch
        first, second = self.optimizers()
        fake = self.pair.generator(z)
        scores = torch.cat((self.pair.discriminator(real), -self.pair.discriminator(fake.detach())))
        first.zero_grad()
        self.manual_backward(F.softplus(-scores).mean())
        square = self.square(self.pair.discriminator)
        self.clip_gradients(first, gradient_clip_val=1e-3, gradient_clip_algorithm="norm")
        first.step()
        second.zero_grad()
        self.manual_backward(F.softplus(-self.pair.discriminator(fake)).mean())
        self.seen.append((square + self.square(self.pair.generator)) ** 0.5)
        second.step()

    def square(self, part: torch.nn.Module) -> float:
        return sum(float(p.grad.double().square().sum()) for p in part.parameters() if p.grad is not None)

    def configure_optimizers(self) -> Any:
        return [torch.optim.Adam(part.parameters(), lr=1e-3) for part in (self.pair.discriminator, self.pair.generator)]


def test_gradients_are_each_optimizers_own_and_unclipped_and_the_training_is_the_same(tmp_path: Path) -> None:
    data = list(zip(torch.cat(noise(STEPS, 8)), torch.cat(noise(STEPS, 8)).flip(0), strict=True))
    ends = []
    for sink in (None, Keep()):
        module = ByHand()
        callbacks = [StabilityCallback(**watched(tmp_path, sink))] if sink else []
        loader: Any = DataLoader(data, batch_size=4)  # type: ignore[arg-type]  # a list is a data set
        lightning_trainer(tmp_path, *callbacks, max_steps=2 * STEPS).fit(module, loader)
        ends.append([p.detach().clone() for p in module.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*ends, strict=True))
    assert sink is not None
    assert [s.scalar("total_grad_norm") for s in sink.snapshots] == pytest.approx(module.seen, rel=1e-5)
