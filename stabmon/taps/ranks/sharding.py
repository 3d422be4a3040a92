"""Tensors of which each rank holds a part (DTensor: FSDP2, tensor parallel), and wrappers that hide the parameters."""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import product
from typing import Any

from torch import Tensor, distributed, nn

_HIDING = {
    "FullyShardedDataParallel": "FSDP1 keeps parameters in flat buffers",
    "DeepSpeedEngine": "DeepSpeed keeps gradients and updates to itself",
}


def local(tensor: Tensor) -> Tensor:
    """What this rank holds of it."""
    to_local = getattr(tensor, "to_local", None)
    return tensor if to_local is None else to_local()


def beside(whole: Tensor | None, like: Tensor) -> Tensor | None:
    """Of a tensor that every rank has, such as one number per token, the part that lies where this rank's of `like`
    does; all of it where `like` is not spread."""
    for i, placement in enumerate(_placements(like)):
        if whole is not None and placement.is_shard():
            chunks = whole.chunk(_size(like, i), placement.dim)
            place = like.device_mesh.get_local_rank(i)  # type: ignore[attr-defined]  # a DTensor
            whole = chunks[place] if place < len(chunks) else whole.narrow(placement.dim, 0, 0)
    return whole


def parts(tensor: Tensor) -> int:
    """In how many different parts it lies on the ranks; 1 where each rank that has it has all of it."""
    return math.prod(_size(tensor, i) for i, p in enumerate(_placements(tensor)) if not p.is_replicate())


def replicated(tensor: Tensor) -> bool:
    """Whether it is a DTensor that several ranks hold the whole of; its gradient may then be yet to be summed."""
    placements = _placements(tensor)
    whole = bool(placements) and all(p.is_replicate() for p in placements)
    return whole and math.prod(_size(tensor, i) for i in range(len(placements))) > 1


def summands(tensor: Tensor) -> int:
    """The number of ranks whose parts of it are yet to be added up; 1 where that is done.

    ValueError: parts that are not summands of one another's whole.
    """
    pending = [(i, p) for i, p in enumerate(_placements(tensor)) if p.is_partial()]
    if any(p.reduce_op != "sum" for _, p in pending):
        raise ValueError(f"a gradient with placements {_placements(tensor)} cannot be read")
    return math.prod(_size(tensor, i) for i, _ in pending)


def twins(tensors: Iterable[Tensor]) -> tuple[int, ...]:
    """Of each rank, which part of the model it holds: ranks with the same number hold the same one (HSDP). Empty where
    that is not one answer for all of these DTensors, or not known for all ranks."""
    spreads = {(t.device_mesh, _cut_along(t)) for t in tensors if _placements(t)}  # type: ignore[attr-defined]
    if len(spreads) != 1:
        return ()
    ((mesh, cut),) = spreads
    places = {}
    for place in product(*(range(mesh.size(i)) for i in range(mesh.ndim))):
        places[int(mesh.mesh[place])] = [place[i] for i in cut]
    if sorted(places) != list(range(len(places))) or len(places) != distributed.get_world_size():
        return ()
    known = [places[rank] for rank in range(len(places))]
    return tuple(known.index(place) for place in known)


def _cut_along(tensor: Tensor) -> tuple[int, ...]:
    return tuple(i for i, placement in enumerate(_placements(tensor)) if not placement.is_replicate())


def is_shared(tensor: Tensor) -> bool:
    """Whether it is a DTensor."""
    return bool(_placements(tensor))


def hides_parameters(model: nn.Module) -> str | None:
    """Why gradients and updates of this model cannot be told by parameter; None where they can."""
    classes = {kind.__name__ for module in model.modules() for kind in type(module).__mro__}
    if any(hasattr(p, "ds_id") or hasattr(p, "_hp_mapping") for p in model.parameters()):
        classes.add("DeepSpeedEngine")  # the Trainer's callbacks are given what is inside the engine
    return next((why for name, why in _HIDING.items() if name in classes), None)


def _placements(tensor: Tensor) -> tuple[Any, ...]:
    found: tuple[Any, ...] = getattr(tensor, "placements", ())
    return found


def _size(tensor: Any, dimension: int) -> int:
    size: int = tensor.device_mesh.size(dimension)
    return size
