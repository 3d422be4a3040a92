"""What a model consists of, for us: its norm layers and its blocks, found once before the first step."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import ParametrizationList

from stabmon.records import Site
from stabmon.taps.model.kinds import GAMMA, ChannelGroups, Channels, Features, Norm, named
from stabmon.taps.model.tryout import try_out

_log = logging.getLogger("stabmon")

_NORM_CLASS = re.compile(
    r"(rms|layer|group|batch|instance|scale|zero.?centered|l2|qk)_?norm(?!al)|norm(2d|1d|gated|head|act)?$"
    r"|^ln$|(^|_)ln(_|$)",
    re.IGNORECASE,
)
_Batch, _Instance = nn.modules.batchnorm._BatchNorm, nn.modules.instancenorm._InstanceNorm
_TORCH = (nn.LayerNorm, nn.RMSNorm, nn.GroupNorm, _Batch, _Instance)
_EPSILONS = ("eps", "variance_epsilon", "epsilon", "layer_norm_eps", "norm_eps")
_WIDTHS = ("normalized_shape", "hidden_size", "dim", "num_features")


def find_norms(model: nn.Module) -> list[Norm]:
    """Every norm layer, hand-written ones included, but for what normalises weights; empty when there is none."""
    of_weights = {part for held in model.modules() if isinstance(held, ParametrizationList) for part in held.modules()}
    found = [_examine(name, m) for name, m in model.named_modules() if m not in of_weights and is_norm(m)]
    return [norm for norm in found if norm]


def select(norms: Sequence[Norm], include: Sequence[str], exclude: Sequence[str]) -> list[Norm]:
    """The norms whose module name fits a pattern of `include` (shell style) and none of `exclude`.

    ValueError: a pattern that fits no norm, or none left.
    """
    require_fits("include", include, norms)
    require_fits("exclude", exclude, norms)
    kept = [n for n in norms if _fits(n.name, include) and not _fits(n.name, exclude)]
    if norms and not include:
        raise ValueError("include=[] leaves no norm layer to watch; leave it out to watch all")
    if norms and not kept:
        raise ValueError(f"exclude={list(exclude)} leaves no norm layer to watch; leave some of its patterns out")
    return kept


def require_fits(argument: str, patterns: Iterable[str], norms: Sequence[Norm]) -> None:
    """ValueError: one of the argument's patterns fits no norm."""
    for pattern in patterns:
        if (norms or pattern != "*") and not any(fnmatchcase(norm.name, pattern) for norm in norms):
            known = ", ".join(norm.name for norm in norms[:8]) + (", …" if len(norms) > 8 else "")
            raise ValueError(f"{argument}={pattern!r} fits no norm layer of the model; it has: {known or 'none'}")


def _fits(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def is_norm(module: nn.Module) -> bool:
    """Whether it is a norm layer of torch's, or looks like one by its name, its parameters and its epsilon."""
    if isinstance(module, _TORCH):
        return True
    # Dropout or an activation may be fused with it; what holds parameters of its own is more than a norm.
    if any(True for child in module.children() for _ in child.parameters()) or any(map(is_norm, module.children())):
        return False
    if _NORM_CLASS.search(type(module).__name__):
        return True
    return _epsilon(module) is not None and all(p.ndim <= 1 for p in module.parameters(recurse=False))


def _epsilon(module: nn.Module) -> float | None:
    found = (getattr(module, name, None) for name in _EPSILONS)
    return next((value for value in found if isinstance(value, float)), None)


def _examine(name: str, module: nn.Module) -> Norm | None:
    """None: it is no norm, or does not take one tensor and return another of its shape, so its input is not known."""
    eps = _epsilon(module)
    if eps is None:
        eps = torch.finfo(torch.float32).eps
    if isinstance(module, nn.GroupNorm):
        return Norm(name, module, ChannelGroups(module.num_groups), True, eps)
    if isinstance(module, _Batch | _Instance):
        return Norm(name, module, Channels(per_sample=isinstance(module, _Instance)), True, eps)
    if isinstance(getattr(module, "running_var", None), Tensor):
        return Norm(name, module, Channels(frozen=True), True, eps)
    if type(module).forward in (nn.LayerNorm.forward, nn.RMSNorm.forward):
        assert isinstance(module, nn.LayerNorm | nn.RMSNorm)
        return Norm(name, module, Features(_width(module)), isinstance(module, nn.LayerNorm), eps)
    return _hand_written(name, module, eps)


def _hand_written(name: str, module: nn.Module, eps: float) -> Norm | None:
    weight = named(module, GAMMA)
    width = _width(module)
    try:
        found = try_out(module, weight, width)
    except Exception as error:  # it is the user's code, given what it may not be made for
        _log.warning(
            "stabmon: %s (%s) cannot be tried out, so it is not watched: %s", name, type(module).__name__, error
        )
        return None
    if found is None:
        return None
    heads = weight is not None and weight.ndim == 2
    over = Features(width if weight is not None and found.axis == -1 else None, found.axis, heads)
    return Norm(name, module, over, found.centred, eps, found.offset, found.unit_length)


def _width(module: nn.Module) -> int | None:
    """How many numbers are normalised together, by its weight, else by what it says of its shape."""
    weight = named(module, GAMMA)
    if isinstance(module, nn.LayerNorm | nn.RMSNorm):
        return int(torch.Size(module.normalized_shape).numel())
    if weight is not None:
        return weight.shape[-1] if weight.ndim == 2 else weight.numel() if weight.numel() > 1 else None
    told = next((value for value in (getattr(module, name, None) for name in _WIDTHS) if value is not None), None)
    if isinstance(told, tuple | list | torch.Size):
        return told[-1] if told and isinstance(told[-1], int) else None
    return told if isinstance(told, int) else None


def find_blocks(model: nn.Module, norms: Sequence[Norm]) -> list[str]:
    """Names of the repeated blocks: the members of the outermost lists of modules that hold norm layers.

    Where those are stages that consist of blocks of one kind (Swin, ConvNeXt), the blocks inside them. Without norm
    layers: of the lists whose members hold parameters deeper inside.
    """
    marks = [norm.name for norm in norms]
    if not marks:
        marks = [name for name, module in model.named_modules() if any(True for _ in module.parameters(recurse=False))]
    return _blocks_in(model, "", marks)


def _blocks_in(module: nn.Module, name: str, marks: Sequence[str]) -> list[str]:
    """`marks`: names of what a block holds, all of them inside `module`."""
    if name in marks:
        return []
    children = {_join(name, child): m for child, m in module.named_children()}
    held = {child: [mark for mark in marks if mark.startswith(child + ".")] for child in children}
    members = [child for child in children if held[child]]
    inner = [block for child in members for block in _blocks_in(children[child], child, held[child])]
    if not isinstance(module, nn.ModuleList | nn.Sequential):
        return inner
    if len(members) == 1:  # a list of one is a wrapper, not a stack of blocks
        return inner or members
    stages = len({type(module.get_submodule(block[len(name) + 1 if name else 0 :])) for block in inner}) == 1
    inside = sum(mark.startswith(block + ".") for mark in marks for block in inner)
    pairs = any(isinstance(children[child], nn.ModuleList) for child in members)  # attention and feed-forward
    return inner if stages and not pairs and 2 * inside >= len(marks) else members


def _join(name: str, child: str) -> str:
    return f"{name}.{child}" if name else child


def norm_sites(called: Sequence[str], blocks: Iterable[str]) -> dict[str, Site]:
    """Site of each norm, given the norms' names in the order in which the first forward called them.

    Before the first block: `embedding` of layer 0. After the last: `final` of the last layer. What lies between two
    blocks, such as an encoder's own final norm, has the layer of the block before it.
    """
    owner = {name: next((b for b in blocks if name.startswith(b + ".")), None) for name in called}
    order = list(dict.fromkeys(block for block in owner.values() if block))
    number = {block: i for i, block in enumerate(order)}
    inside = [i for i, name in enumerate(called) if owner[name]]
    sites: dict[str, Site] = {}
    taken: set[tuple[int, str]] = set()
    layer = 0
    for i, name in enumerate(called):
        block, role = owner[name], _role(name)
        if block:
            layer, role = number[block], _role(name[len(block) + 1 :])
        elif not inside:
            layer = i
        elif i < inside[0]:
            role = "embedding"
        elif i > inside[-1]:
            layer, role = len(order) - 1, "final"
        if (layer, role) in taken:
            role = _role(name)
        taken.add((layer, role))
        sites[name] = Site(name, layer, role)
    return sites


def _role(path: str) -> str:
    snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", path)
    return re.sub(r"[^a-z0-9]+", "_", snake.lower()).strip("_") or "norm"


def group_parameters(
    parameters: Iterable[str], blocks: Sequence[str], norms: Mapping[str, Site]
) -> dict[Site, list[str]]:
    """Parameter names by block; those outside the blocks by the module that owns them."""
    layer = {block: site.layer for name, site in norms.items() for block in blocks if name.startswith(block + ".")}
    groups: dict[Site, list[str]] = {}
    for name in parameters:
        block = next((b for b in blocks if name.startswith(b + ".")), None)
        module = name.rpartition(".")[0] or name
        site = Site(block, layer.get(block), "block") if block else norms.get(module, Site(module, None, _role(module)))
        groups.setdefault(site, []).append(name)
    return groups
