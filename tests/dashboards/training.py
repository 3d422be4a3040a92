"""Small trainings at level deep, for a Prometheus to scrape.

`python -m tests.dashboards.training FOLDER RUN:RANK:WORLD …`: a process for each, from when FOLDER/go is there
until all are killed.
"""

from __future__ import annotations

import os
import sys
import time
from datetime import timedelta
from itertools import count, takewhile
from pathlib import Path

import torch
from torch import Tensor, distributed, nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

from stabmon import Monitor
from stabmon.records import Alert

VOCABULARY, LENGTH, WIDTH, HEADS, BLOCKS, ROWS, EXPERTS = 64, 16, 32, 4, 8, 8, 4
PAUSE_SECONDS = 0.25
"""After a step: an alert is open for a dozen steps, and one scrape at least has to see it."""
LONGEST_SECONDS = 1800.0
"""Where nobody is left to end it."""


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(WIDTH, WIDTH) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (part(x).unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in (self.q, self.k, self.v))
        out: Tensor = self.o(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        return out


class Experts(nn.Module):
    """Each token through the one expert that was chosen for it; in bfloat16, so that updates are rounded."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Parameter((torch.randn(EXPERTS, WIDTH, WIDTH) / WIDTH**0.5).bfloat16())

    def forward(self, x: Tensor, chosen: Tensor) -> Tensor:
        return torch.einsum("btd,btdf->btf", x.bfloat16(), self.up[chosen.squeeze(-1)]).to(x.dtype)


class Mixture(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.router, self.experts = nn.Linear(WIDTH, EXPERTS), Experts()

    def forward(self, x: Tensor) -> Tensor:
        weights, chosen = self.router(x).softmax(-1).max(-1, keepdim=True)
        out: Tensor = weights * self.experts(x, chosen)
        return out


class Block(nn.Module):
    def __init__(self, pre: bool, mixture: bool) -> None:
        super().__init__()
        self.pre = pre
        self.ln_1, self.ln_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention = Attention()
        dense = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.ReLU(), nn.Linear(4 * WIDTH, WIDTH))
        self.mlp = Mixture() if mixture else dense

    def forward(self, x: Tensor) -> Tensor:
        if self.pre:
            x = x + self.attention(self.ln_1(x))
            return x + self.mlp(self.ln_2(x))
        x = self.ln_1(x + self.attention(x))
        out: Tensor = self.ln_2(x + self.mlp(x))
        return out


class Network(nn.Module):
    """Token ids [B, T] -> logits [B, T, V]; every fourth block is a mixture of experts."""

    def __init__(self, pre: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding, self.position = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.ModuleList(Block(pre, i % 4 == EXPERTS - 1) for i in range(BLOCKS))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens) + self.position.weight
        for block in self.blocks:
            x = block(x)
        logits: Tensor = self.head(self.norm(x))
        return logits


class Told:
    """Somebody who is told of alerts."""

    name = "told"

    def send(self, alert: Alert) -> None: ...


def batch(step: int) -> tuple[Tensor, Tensor]:
    """Inputs and targets: a noisy count upwards, low tokens more often than high ones."""
    generator = torch.Generator().manual_seed(step)
    start = (VOCABULARY * torch.rand(ROWS, 1, generator=generator) ** 2).long()
    tokens = (
        start + torch.arange(LENGTH + 1) // 3 + torch.randint(3, (ROWS, LENGTH + 1), generator=generator)
    ) % VOCABULARY
    return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()


def train(folder: Path, run: str, rank: int, world: int) -> None:
    pre = run.endswith("pre")
    network: nn.Module = Network(pre)
    if world > 1:
        meeting = f"file://{folder}/{run}.meeting"
        distributed.init_process_group("gloo", meeting, rank=rank, world_size=world, timeout=timedelta(seconds=60))
        network = DistributedDataParallel(network)
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-3 if pre else 2e-2)
    watched = {
        "run": run,
        "level": "deep",
        "every": 5,
        "probe_every": 10,
        "port": 0,
        "folder": folder,
        "notify": Told(),
    }
    with Monitor(network, optimizer, **watched) as monitor:
        while not (folder / "go").exists():
            time.sleep(0.05)
        until = time.monotonic() + LONGEST_SECONDS
        for step in takewhile(lambda _: time.monotonic() < until, count()):
            inputs, targets = batch(world * step + rank)
            loss = F.cross_entropy(network(inputs).flatten(0, 1), targets.flatten())
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            if step % 10 == 9:
                monitor.evaluated(loss.item())
            monitor.step(loss, targets=targets)
            time.sleep(PAUSE_SECONDS)


def main(folder: Path, jobs: list[str]) -> None:
    """torch is imported once, and each training forked from there."""
    torch.set_num_threads(1)
    for job in jobs:
        run, rank, world = job.split(":")
        if not os.fork():
            train(folder, run, int(rank), int(world))
            sys.exit()
    os.wait()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
