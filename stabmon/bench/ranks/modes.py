"""Ways to spread a training over processes: how each wraps the model, and which rows of a batch each rank gets."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any, cast

import torch
from torch import Tensor, distributed, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)
from torch.nn.parallel import DistributedDataParallel

from stabmon.bench.ranks.network import LENGTH, ROWS, WIDTH, Network, loss_of


@dataclass
class Wrapped:
    """A model ready to train on one rank. `train` does forward and backward of the rows it is given, and gives the
    loss, None where this rank does not know it."""

    model: nn.Module
    train: Callable[[Tensor, Tensor], Tensor | None]


@dataclass(frozen=True)
class Mode:
    """`shards`: into how many parts data parallelism splits a batch's rows; `micro`: each rank's part into how many
    micro-batches; `neighbours`: whether ranks that share rows have successive numbers."""

    name: str
    wrap: Callable[[Network], Wrapped]
    shards: Callable[[int], int] = field(default=lambda world: world)
    micro: int = 1
    neighbours: bool = False
    split: bool = False
    """Whether each rank's norms see a part of the sequence."""
    ids: torch.dtype = torch.long
    """Stages after the first are given no token ids, and so do not know which token is the first of a sequence. For a
    comparison nobody is to know it: ids are floats."""
    note: str = ""

    def parts(self, world: int) -> list[Callable[[Tensor], Tensor]]:
        """Of each micro-batch of one step, over all ranks, how to take it out of the batch."""
        shards = self.shards(world)
        return [_rows(i, shards, j, self.micro) for i in range(shards) for j in range(self.micro)]

    def mine(self, rank: int, world: int) -> Callable[[Tensor], Tensor]:
        """How to take this rank's rows out of the batch."""
        shards = self.shards(world)
        return _rows(rank * shards // world if self.neighbours else rank % shards, shards, 0, 1)


def _rows(shard: int, shards: int, part: int, parts: int) -> Callable[[Tensor], Tensor]:
    return lambda rows: rows[shard::shards].chunk(parts)[part]


def _plain(model: nn.Module, micro: int = 1) -> Wrapped:
    def train(inputs: Tensor, targets: Tensor) -> Tensor:
        losses = []
        pairs = list(zip(inputs.chunk(micro), targets.chunk(micro), strict=True))
        for i, (x, y) in enumerate(pairs):
            waits = i < micro - 1 and isinstance(model, DistributedDataParallel)
            with cast("DistributedDataParallel", model).no_sync() if waits else nullcontext():
                loss = loss_of(model(x), y)
                (loss / micro).backward()
            losses.append(loss.detach())
        return torch.stack(losses).mean()

    return Wrapped(model, train)


def ddp(network: Network, micro: int = 1, **options: Any) -> Wrapped:
    """DistributedDataParallel."""
    return _plain(DistributedDataParallel(network, **options), micro)


def fsdp2(network: Network, mesh: DeviceMesh | None = None, micro: int = 1, **options: Any) -> Wrapped:
    """Each block, then the rest."""
    for block in network.blocks:
        if not isinstance(block, nn.Identity):
            fully_shard(block, mesh=mesh, **options)
    fully_shard(network, mesh=mesh, **options)
    return _plain(network, micro)


def hsdp(network: Network) -> Wrapped:
    """Sharded inside pairs, replicated over them."""
    shape, names = (distributed.get_world_size() // 2, 2), ("replicate", "shard")
    return fsdp2(network, init_device_mesh("cpu", shape, mesh_dim_names=names))


def tensor_parallel(network: Network) -> Wrapped:
    """Split by heads and hidden units; norms over a part of the sequence each."""
    return _plain(_split(network, init_device_mesh("cpu", (distributed.get_world_size(),))))


def fsdp2_tp(network: Network) -> Wrapped:
    """Both: sharded over one dimension of the mesh, split over the other."""
    names = ("data", "tensor")
    mesh = init_device_mesh("cpu", (distributed.get_world_size() // 2, 2), mesh_dim_names=names)
    return fsdp2(_split(network, mesh["tensor"]), mesh["data"])


def _split(network: Network, mesh: DeviceMesh) -> Network:
    whole = PrepareModuleInput(input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),))
    plan: dict[str, ParallelStyle] = {
        "embedding": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
        "ln_f": SequenceParallel(),
        "head": ColwiseParallel(input_layouts=Shard(1), output_layouts=Replicate()),
    }
    for i in range(len(network.blocks)):
        at = f"blocks.{i}."
        plan |= {at + name: SequenceParallel() for name in ("ln_1", "ln_2")}
        plan |= {at + name: whole for name in ("attn", "mlp")}
        plan |= {at + name: ColwiseParallel() for name in ("attn.q", "attn.k", "attn.v", "mlp.up")}
        plan |= {at + name: RowwiseParallel(output_layouts=Shard(1)) for name in ("attn.o", "mlp.down")}
    parallelize_module(network, mesh, plan)
    return network


def pipeline(network: Network, shard: bool = False, micro: int = 2) -> Wrapped:
    """GPipe over all ranks; with `shard` over every second rank, each stage sharded over two."""
    world, rank = distributed.get_world_size(), distributed.get_rank()
    stages = world // 2 if shard else world
    mesh = init_device_mesh("cpu", (stages, world // stages), mesh_dim_names=("stage", "data"))
    number = rank // (world // stages)
    part: nn.Module = network.keep(number, stages)
    if shard:
        part = fsdp2(network, mesh["data"]).model
    rows = ROWS // (world // stages) // micro
    first, last = number == 0, number == stages - 1
    example = torch.zeros(rows, LENGTH) if first else torch.zeros(rows, LENGTH, WIDTH)
    group = mesh["stage"].get_group()
    stage = PipelineStage(part, number, stages, torch.device("cpu"), input_args=(example,), group=group)
    schedule = ScheduleGPipe(stage, micro, loss_fn=loss_of)

    def train(inputs: Tensor, targets: Tensor) -> Tensor | None:
        losses: list[Tensor] = []
        given = (inputs,) if first else ()
        schedule.step(*given, target=targets if last else None, losses=losses if last else None)
        return torch.stack([loss.detach() for loss in losses]).mean() if last else None

    return Wrapped(part, train)


def _one(world: int) -> int:
    return 1


def _half(world: int) -> int:
    return world // 2


_BF16 = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
_STAGE = "first tokens count, since later stages do not know them"

MODES = {
    mode.name: mode
    for mode in (
        Mode("ddp", ddp),
        Mode("ddp_static_graph", lambda network: ddp(network, static_graph=True)),
        Mode("ddp_find_unused", lambda network: ddp(network, find_unused_parameters=True)),
        Mode("ddp_bucket_view", lambda network: ddp(network, gradient_as_bucket_view=True)),
        Mode("ddp_no_sync", lambda network: ddp(network, 2), micro=2),
        Mode("fsdp2", fsdp2),
        Mode("fsdp2_not_resharded", lambda network: fsdp2(network, reshard_after_forward=False)),
        Mode("fsdp2_bf16", lambda network: fsdp2(network, mp_policy=_BF16)),
        Mode("hsdp", hsdp),
        Mode("tensor_parallel", tensor_parallel, _one, split=True),
        Mode("fsdp2_tp", fsdp2_tp, _half, neighbours=True, split=True),
        Mode("pipeline", pipeline, _one, micro=2, ids=torch.float, note=_STAGE),
        Mode(
            "pipeline_fsdp2", lambda network: pipeline(network, shard=True), lambda world: 2, micro=2, ids=torch.float
        ),
    )
}
