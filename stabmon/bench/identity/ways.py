"""Ways to train a small language model, each with what could be disturbed by watching."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import LBFGS, AdamW, Optimizer
from torch.utils.checkpoint import checkpoint

from stabmon.bench.ranks.modes import ddp, fsdp2
from stabmon.bench.ranks.network import WIDTH, Network


@dataclass(frozen=True)
class Way:
    """What a training does otherwise than the plain one, which is float32, AdamW and one batch a step."""

    name: str
    prepare: Callable[[Network], nn.Module] = lambda network: network
    optimizer: Callable[[Iterable[nn.Parameter]], Optimizer] = partial(AdamW, lr=1e-2)
    dropout: float = 0.0
    autocast: torch.dtype | None = None
    scaled: bool = False
    """By a GradScaler whose first scale is too large, so that steps are skipped."""
    micro: int = 1
    clip: bool = False
    average: bool = False
    """A moving average of the weights is kept, in a copy of the model."""
    evaluate: bool = False
    ranks: int = 1


class _Adapted(nn.Module):
    """A frozen linear layer and a trained product of two narrow ones."""

    def __init__(self, base: nn.Module) -> None:
        super().__init__()
        self.base = base
        self.down, self.up = nn.Linear(WIDTH, 4, bias=False), nn.Linear(4, WIDTH, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.base(x) + self.up(self.down(x))
        return out


class _OverBatch(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        normed: Tensor = self.norm(x.transpose(1, 2)).transpose(1, 2)
        return normed


def _low_rank(network: Network) -> nn.Module:
    for parameter in network.parameters():
        parameter.requires_grad_(False)
    for block in network.blocks:
        attention: Any = block.attn
        attention.q, attention.v = _Adapted(attention.q), _Adapted(attention.v)
    return network


def _over_batch(network: Network) -> nn.Module:
    for block in network.blocks:
        block.ln_2 = _OverBatch()
    return network


def _checkpointed(network: Network, reentrant: bool) -> nn.Module:
    for block in network.blocks:
        block.forward = partial(checkpoint, block.forward, use_reentrant=reentrant)
    return network


def _compiled(network: nn.Module, backend: str = "aot_eager") -> nn.Module:
    network.compile(backend=backend)
    return network


def _compiled_blocks(network: Network) -> nn.Module:
    for block in network.blocks:
        block.compile(backend="aot_eager", fullgraph=True)
    return network


def _compiled_checkpointed(network: Network) -> nn.Module:
    return _compiled(_checkpointed(network, reentrant=False))


WAYS: tuple[Way, ...] = (
    Way("float32"),
    Way("bfloat16 autocast", autocast=torch.bfloat16),
    Way("bfloat16 weights", lambda network: network.to(torch.bfloat16)),
    Way("float16 autocast, GradScaler, skipped steps", autocast=torch.float16, scaled=True),
    Way("accumulation over 2 micro-batches", micro=2),
    Way("clipping", clip=True),
    Way("checkpointing, reentrant", partial(_checkpointed, reentrant=True), dropout=0.1),
    Way("checkpointing, not reentrant", partial(_checkpointed, reentrant=False), dropout=0.1),
    Way("dropout and BatchNorm", _over_batch, dropout=0.1),
    Way("moving average of the weights", average=True),
    Way("LBFGS", optimizer=partial(LBFGS, lr=0.1, max_iter=3)),
    Way("low-rank adapters on frozen weights", _low_rank),
    Way("evaluation in between", evaluate=True, dropout=0.1),
    Way("compiled (aot_eager)", _compiled),
    Way("compiled block by block (aot_eager)", _compiled_blocks),
    Way("compiled and checkpointed (aot_eager)", _compiled_checkpointed),
    Way("compiled (inductor)", partial(_compiled, backend="inductor")),
    Way("DDP, 2 processes", lambda network: ddp(network).model, ranks=2),
    Way("FSDP2, 2 processes", lambda network: fsdp2(network).model, ranks=2),
)
"""All of them."""
