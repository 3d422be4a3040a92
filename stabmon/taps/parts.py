"""The parts of the model under watch, found once before its first step; every tap is made from them."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import nn
from torch.nn import UninitializedParameter
from torch.optim import Optimizer

from stabmon.records import Site
from stabmon.settings import Settings
from stabmon.taps.forward import Forward
from stabmon.taps.groups import Groups
from stabmon.taps.model.anatomy import find_blocks, find_norms, group_parameters, norm_sites, require_fits, select
from stabmon.taps.model.kinds import Norm
from stabmon.taps.norms import Norms
from stabmon.taps.notices import Notice, Notices
from stabmon.taps.ranks.sharding import hides_parameters

_log = logging.getLogger("stabmon")


@dataclass(frozen=True)
class Parts:
    """What taps are made from."""

    model: nn.Module
    optimizers: Sequence[Optimizer]
    norms: Sequence[Norm]
    """Norm layers that are watched."""
    blocks: Sequence[str]
    """Names of the blocks."""
    parameters_of: Mapping[Site, Sequence[str]]
    """Names of the trained parameters by block."""
    groups: Groups
    """The same parameters, ready to be summed by block."""
    forward: Forward
    norm_tap: Norms
    """Knows the site of each norm that was called, in forward order, from the end of the first step on."""
    device: torch.device
    """Where readings are added up."""
    notices: Notices = field(default_factory=Notices)
    """What taps cannot look at."""


def examine(model: nn.Module, optimizers: Sequence[Optimizer], settings: Settings) -> Parts:
    """Find everything that is to be watched, and attach what watches the forward.

    ValueError: a pattern that fits no norm layer, or an optimizer that holds nothing of the model.
    """
    found, notices = find_norms(model), Notices()
    if not found:
        notices.say(
            Notice(
                f"{type(model).__name__} has no norm layer, so norm inputs, gain, context share and similarity are not "
                "read, and no stall is seen; gradients, updates and output change are. Is this the network, or a "
                "wrapper around it?",
                what="norm inputs, gain, context share and similarity",
                why=f"{type(model).__name__} has no norm layer, so no stall is seen.",
                todo="Give Monitor the network itself, if this is a wrapper around it.",
            )
        )
    norms = select(found, settings.include, settings.exclude)
    if isinstance(settings.placement, dict):
        require_fits("placement", settings.placement, found)
    parameters = _held(model, optimizers, notices)
    device = next(iter(parameters.values())).device
    blocks = find_blocks(model, norms)
    groups = group_parameters(parameters, blocks, norm_sites([norm.name for norm in norms], blocks))
    failed = partial(_log.error, "stabmon: watching the model's forward failed: %r")
    stacks = {block.rpartition(".")[0].rpartition(".")[0] for block in blocks}
    forward = Forward(model, [norm.name for norm in found], failed, stacks, notices)
    return Parts(
        model=model,
        optimizers=optimizers,
        norms=norms,
        blocks=blocks,
        parameters_of=groups,
        groups=Groups(parameters, groups, hides_parameters(model) is None),
        forward=forward,
        norm_tap=Norms(norms, blocks, forward, device),
        device=device,
        notices=notices,
    )


def _held(model: nn.Module, optimizers: Iterable[Optimizer], notices: Notices) -> dict[str, nn.Parameter]:
    """The model's trainable parameters that an optimizer holds, by name; ValueError when there is none."""
    ids = {id(p) for optimizer in optimizers for group in optimizer.param_groups for p in group["params"]}
    hidden = hides_parameters(model) is not None  # DeepSpeed's optimizers hold buffers of their own
    found = {name: p for name, p in model.named_parameters() if p.requires_grad and (hidden or id(p) in ids)}
    if lazy := [name for name, p in found.items() if isinstance(p, UninitializedParameter)]:
        raise ValueError(f"model: {lazy[0]} has no shape yet; call the model once before making the Monitor")
    if empty := [name for name, p in found.items() if p.is_meta]:
        raise ValueError(
            f"model: {empty[0]} is on the meta device and has no values; make optimizer and Monitor after "
            "model.to_empty(device=...) and its initialisation"
        )
    if not found:
        raise ValueError(
            f"optimizer: holds none of the {sum(1 for _ in model.parameters())} parameters of "
            f"model={type(model).__name__}; pass the optimizer that was built from this model's parameters "
            "(after moving or wrapping it), and the model that it trains"
        )
    left = [name for name, p in model.named_parameters() if p.requires_grad and name not in found]
    if left:
        notices.say(
            Notice(
                f"no optimizer that was given holds {len(left)} trainable parameters, such as {left[0]}; their "
                "gradients and updates are not read. Give Monitor all optimizers of the model, in a list, or have the "
                "trainer's optimizer hold them",
                what=f"gradients and updates of {len(left)} parameters, such as {left[0]}",
                why="No optimizer that Monitor was given holds them.",
                todo="Give Monitor all optimizers of the model, in a list, or have the trainer's optimizer hold them.",
            )
        )
    return found
