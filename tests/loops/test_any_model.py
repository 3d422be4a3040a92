"""Models that are no language models, and loops that are no plain ones."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tests.loops.decoder import BATCH, VOCABULARY, Decoder, batches, loss_of
from tests.loops.recipe import STEPS, adamw
from tests.loops.witness import Attach, Watched, assert_read_right, both


def noise(steps: int, *shape: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(2)
    return [torch.randn(BATCH, *shape, generator=generator) for _ in range(steps)]


class Pair(nn.Module):
    """A generator and a discriminator, each with a norm."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.generator = nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.Tanh(), nn.Linear(16, 8))
        self.discriminator = nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.Tanh(), nn.Linear(16, 1))


class GAN:
    """The generator's backward pass goes through the discriminator, whose gradients it leaves behind."""

    def __call__(self, attach: Attach) -> None:
        pair = Pair()
        first, second = (torch.optim.Adam(part.parameters(), lr=1e-3) for part in (pair.discriminator, pair.generator))
        witness = attach(pair, [first, second])
        for z, real in zip(noise(STEPS, 8), noise(STEPS, 8), strict=True):
            fake = pair.generator(z)
            scores = torch.cat((pair.discriminator(real), -pair.discriminator(fake.detach())))
            loss = F.softplus(-scores).mean()
            first.zero_grad()
            loss.backward()
            witness.gradients(part="discriminator")
            first.step()
            second.zero_grad()
            F.softplus(-pair.discriminator(fake)).mean().backward()
            witness.gradients(part="generator")
            second.step()
            witness.step(loss.detach())


def test_each_network_of_a_gan_shows_the_gradients_that_its_own_optimizer_stepped_with(tmp_path: Path) -> None:
    assert_read_right(both(GAN(), tmp_path), norms=False)


def rollouts(attach: Attach) -> None:
    """Reinforcement learning: forwards without gradients, in training mode, between the updates."""
    model = Decoder().train()
    [optimizer] = adamw(model)
    witness = attach(model, [optimizer])
    for inputs, targets in batches(STEPS):
        with torch.no_grad():
            for length in (1, 2, 3):
                model(inputs[:, :length])
        with torch.inference_mode():
            model(inputs[:1])
        with witness.forward():
            loss = loss_of(model, inputs, targets)
        loss.backward()
        witness.gradients()
        optimizer.step()
        optimizer.zero_grad()
        with torch.no_grad():
            model(inputs[:2])
        witness.step(loss, targets)


def test_rollouts_between_updates_do_not_count(tmp_path: Path) -> None:
    assert_read_right(both(rollouts, tmp_path))


def twice(attach: Attach) -> None:
    """Two calls of the model in each step, of which one loss is made (contrastive, consistency)."""
    model = Decoder().train()
    [optimizer] = adamw(model)
    witness = attach(model, [optimizer])
    for inputs, targets in batches(STEPS):
        with witness.forward():
            one, other = model(inputs), model(inputs)
        loss = F.cross_entropy(one.flatten(0, 1), targets.flatten()) + (one - other).square().mean()
        loss.backward()
        witness.gradients()
        optimizer.step()
        optimizer.zero_grad()
        witness.step(loss, targets)


def test_two_calls_in_a_step_are_read_as_one_batch(tmp_path: Path) -> None:
    assert_read_right(both(twice, tmp_path))


def evaluated(attach: Attach) -> None:
    """Evaluation between the steps, in eval mode and forgotten in training mode."""
    model = Decoder().train()
    [optimizer] = adamw(model)
    witness = attach(model, [optimizer])
    for step, (inputs, targets) in enumerate(batches(STEPS)):
        model.train()
        with witness.forward():
            loss = loss_of(model, inputs, targets)
        loss.backward()
        witness.gradients()
        optimizer.step()
        optimizer.zero_grad()
        witness.step(loss, targets)
        model.train(step % 2 == 0)
        with torch.no_grad():
            model(targets)
        if step % 2:
            model(targets)  # eval mode, with gradients


def test_evaluation_in_between_does_not_count(tmp_path: Path) -> None:
    assert_read_right(both(evaluated, tmp_path))


class Classifier(nn.Module):
    """An encoder with one answer a sample: logits [B, outputs]."""

    reads_tokens = True

    def __init__(self, outputs: int) -> None:
        super().__init__()
        self.encoder = Decoder(dropout=0.1)
        self.encoder.head = nn.Identity()  # type: ignore[assignment]
        self.head = nn.Linear(16, outputs)

    def forward(self, tokens: Tensor) -> Tensor:
        pooled: Tensor = self.head(self.encoder(tokens).mean(1))
        return pooled


@pytest.mark.parametrize("outputs", [3, 1])
def test_an_encoder_with_classes_has_their_entropy_and_with_a_number_no_baseline(tmp_path: Path, outputs: int) -> None:
    def loop(attach: Attach) -> None:
        model = Classifier(outputs).train()
        [optimizer] = adamw(model)
        witness = attach(model, [optimizer])
        for inputs, targets in batches(STEPS):
            wanted = targets[:, 0] % 3 if outputs > 1 else targets[:, 0].float()
            with witness.forward():
                answer = model(inputs)
            loss = F.cross_entropy(answer, wanted) if outputs > 1 else F.mse_loss(answer[:, 0], wanted)
            loss.backward()
            witness.gradients()
            optimizer.step()
            optimizer.zero_grad()
            witness.step(loss, wanted)

    found = both(loop, tmp_path)
    assert_read_right(found)
    last = found.pairs[-1][1]
    baselines = [last.scalar(name) for name in ("uniform_loss", "unigram_loss", "bigram_loss")]
    assert np.isfinite(baselines).tolist() == ([True, True, False] if outputs > 1 else [False] * 3)
    assert np.isfinite(last.scalar("total_output_change_ratio"))


class UNet(nn.Module):
    """Two levels with GroupNorm, a skip connection and a time embedding: noise [B, 4, 8, 8] at times [B]."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.time = nn.Embedding(10, 8)
        self.down = nn.Conv2d(4, 8, 3, stride=2, padding=1)
        self.norm_1, self.norm_2 = nn.GroupNorm(2, 8), nn.GroupNorm(2, 8)
        self.middle = nn.Conv2d(8, 8, 3, padding=1)
        self.up = nn.ConvTranspose2d(8, 4, 2, stride=2)

    def forward(self, x: Tensor, times: Tensor) -> Tensor:
        h = F.silu(self.norm_1(self.down(x)) + self.time(times)[:, :, None, None])
        h = h + F.silu(self.norm_2(self.middle(h)))
        answer: Tensor = x + self.up(h)
        return answer


class CNN(nn.Module):
    """Convolutions with BatchNorm: logits [B, 3] of images [B, 4, 8, 8]."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.Sequential(nn.Conv2d(4, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3))
        self.norm, self.head = nn.BatchNorm2d(8), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        answer: Tensor = self.head(self.norm(self.layers(x)).mean((2, 3)))
        return answer


@pytest.mark.parametrize("kind", [UNet, CNN])
def test_networks_of_images_are_read_right_and_their_buffers_stay(tmp_path: Path, kind: type[nn.Module]) -> None:
    def loop(attach: Attach) -> None:
        model = kind().train()
        [optimizer] = adamw(model)
        witness = attach(model, [optimizer])
        for step, images in enumerate(noise(STEPS, 4, 8, 8)):
            numbers = (torch.arange(BATCH) + step) % 3
            with witness.forward():
                answer = model(images, numbers) if kind is UNet else model(images)
            loss = F.mse_loss(answer, images.flip(0)) if kind is UNet else F.cross_entropy(answer, numbers)
            loss.backward()
            witness.gradients()
            optimizer.step()
            optimizer.zero_grad()
            witness.step(loss, None if kind is UNet else numbers)

    found = both(loop, tmp_path)
    assert_read_right(found)
    last = found.pairs[-1][1]
    assert np.isfinite(last.scalar("total_output_change_ratio"))
    assert np.isnan(last.scalar("unigram_loss")) == (kind is UNet)


class Convolution(nn.Module):
    """Of text, with the classes where torch's cross entropy has them: logits [B, V, T]."""

    reads_tokens = False

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, 16)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.ConstantPad1d((2, 0), 0.0), nn.Conv1d(16, 16, 3), nn.BatchNorm1d(16)) for _ in range(2)
        )
        self.head = nn.Conv1d(16, VOCABULARY, 1)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens).transpose(1, 2)
        for block in self.blocks:
            x = x + torch.relu(block(x))
        logits: Tensor = self.head(x)
        return logits


def test_classes_in_the_second_dimension_are_told_by_the_targets(tmp_path: Path) -> None:
    model = Convolution()
    model.eval()  # so that the probe is what the loss is of
    [optimizer] = adamw(model)
    watched = Watched(tmp_path, model, [optimizer])
    for inputs, targets in batches(STEPS):
        loss = F.cross_entropy(model(inputs), targets)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        watched.step(loss, targets)
    watched.monitor.close()
    first, last = watched.kept.snapshots[0], watched.kept.snapshots[-1]
    assert first.scalar("probe_loss") == pytest.approx(first.scalar("loss"), rel=1e-5)
    assert last.scalar("uniform_loss") == pytest.approx(np.log(VOCABULARY), rel=1e-6)
    assert last.scalar("unigram_loss") > 0.9 * np.log(VOCABULARY)
    assert watched.monitor.architecture["looks_ahead"] == 0
