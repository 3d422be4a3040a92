"""What a model consists of, for us: its norm layers and its blocks, found once before the first step."""

from __future__ import annotations

import copy
import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

import torch
from torch import Tensor, nn

from stabmon.records import Site

_log = logging.getLogger("stabmon")

_NORM_CLASS = re.compile(
    r"(rms|layer|scale|zero.?centered|l2|qk)_?norm(?!al)|norm(1d|gated|head|act)?$|^ln$|(^|_)ln(_|$)", re.IGNORECASE
)
_OTHER_NORMS = (nn.GroupNorm, nn.modules.batchnorm._NormBase)
_EPSILONS = ("eps", "variance_epsilon", "epsilon", "layer_norm_eps", "norm_eps")


@dataclass(frozen=True)
class Norm:
    """One norm layer over the last `width` features of its input."""

    name: str
    module: nn.Module
    width: int | None
    """None: taken from the input's last dimension."""
    centred: bool
    """LayerNorm subtracts the mean, RMSNorm does not."""
    eps: float
    offset: float
    """gamma_eff = weight + offset; 1 in models that learn gamma - 1 (Gemma)."""

    def gamma(self) -> Tensor | None:
        """What it multiplies the normalised input by, float32[width]; None = 1."""
        weight = getattr(self.module, "weight", None)
        return weight.detach().float().reshape(-1) + self.offset if isinstance(weight, Tensor) else None

    def beta(self) -> Tensor | None:
        """What it adds afterwards, float32[width]; None = 0."""
        bias = getattr(self.module, "bias", None)
        return bias.detach().float().reshape(-1) if isinstance(bias, Tensor) else None


def find_norms(model: nn.Module) -> list[Norm]:
    """Every LayerNorm and RMSNorm, hand-written ones included; ValueError when there is none."""
    found = [_examine(name, module) for name, module in model.named_modules() if _is_norm(module)]
    norms = [norm for norm in found if norm]
    if not norms:
        others = sorted({type(m).__name__ for m in model.modules() if isinstance(m, _OTHER_NORMS)})
        seen = f"; its {', '.join(others)} cannot be watched yet" if others else ""
        raise ValueError(
            f"model={type(model).__name__}: no norm layer found (looked for LayerNorm, RMSNorm and classes named like "
            f"them{seen}). stabmon watches networks with such layers; is this the network, or a wrapper around it?"
        )
    return norms


def select(norms: Sequence[Norm], include: Sequence[str], exclude: Sequence[str]) -> list[Norm]:
    """The norms whose module name fits a pattern of `include` (shell style) and none of `exclude`.

    ValueError: a pattern that fits no norm, or none left.
    """
    for argument, patterns in (("include", include), ("exclude", exclude)):
        for pattern in patterns:
            if not any(fnmatchcase(norm.name, pattern) for norm in norms):
                known = ", ".join(norm.name for norm in norms[:8]) + (", …" if len(norms) > 8 else "")
                raise ValueError(f"{argument}={pattern!r} fits no norm layer of the model; it has: {known}")
    kept = [n for n in norms if _fits(n.name, include) and not _fits(n.name, exclude)]
    if not kept:
        raise ValueError(f"exclude={list(exclude)} leaves no norm layer to watch; leave some of its patterns out")
    return kept


def _fits(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _is_norm(module: nn.Module) -> bool:
    if isinstance(module, nn.LayerNorm | nn.RMSNorm):
        return True
    if isinstance(module, _OTHER_NORMS) or any(True for _ in module.children()):
        return False
    flat = all(p.ndim <= 1 for p in module.parameters(recurse=False))
    return flat and (bool(_NORM_CLASS.search(type(module).__name__)) or _epsilon(module) is not None)


def _epsilon(module: nn.Module) -> float | None:
    found = (getattr(module, name, None) for name in _EPSILONS)
    return next((value for value in found if isinstance(value, float)), None)


def _examine(name: str, module: nn.Module) -> Norm | None:
    """None: it does not take one tensor and return another of its shape, so its input is not known."""
    weight = getattr(module, "weight", None)
    width = weight.numel() if isinstance(weight, Tensor) else None
    if isinstance(module, nn.LayerNorm):
        width = int(torch.Size(module.normalized_shape).numel())
    eps = _epsilon(module)
    if eps is None:
        eps = torch.finfo(torch.float32).eps
    if isinstance(module, nn.LayerNorm | nn.RMSNorm) or not isinstance(weight, Tensor):
        centred = isinstance(module, nn.LayerNorm) or "layer" in type(module).__name__.lower()
        return Norm(name, module, width, centred, eps, 0.0)
    try:
        centred, offset = _try_out(module, weight)
    except Exception as error:  # it is the user's code, given what it may not be made for
        _log.warning(
            "stabmon: %s (%s) cannot be tried out, so it is not watched: %s", name, type(module).__name__, error
        )
        return None
    return Norm(name, module, width, centred, eps, offset)


@torch.no_grad()
def _try_out(module: nn.Module, weight: Tensor) -> tuple[bool, float]:
    """(centred, offset) of a hand-written norm, from what it does to one random input."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(1, 8, weight.numel(), generator=generator).to(weight.device, weight.dtype)
    # `forward`, not a call: nobody's hooks are to see this input.
    # A copy, since some set their weights by the first input that they see (ActNorm).
    copied = copy.deepcopy(module)
    with torch.random.fork_rng(devices=[]):
        y, shifted = (copied.forward(value).float() for value in (x, x + 4))
    centred = bool((y - shifted).abs().max() < 0.1 * y.abs().max() + 1e-3)
    x = x.float() - x.float().mean(-1, keepdim=True) * centred
    unit = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-12)
    # The slope of the output over the normalised input, per feature: a bias drops out.
    unit_c, y_c = (v - v.mean(1, keepdim=True) for v in (unit, y))
    gamma = (unit_c * y_c).sum((0, 1)) / unit_c.square().sum((0, 1))
    return centred, float((gamma - weight.float()).mean().round().clamp(0, 1))


def find_blocks(model: nn.Module, norms: Sequence[Norm]) -> list[str]:
    """Names of the repeated blocks: the members of the outermost lists of modules that hold norm layers."""
    names = {norm.name for norm in norms}
    lists: dict[str, list[str]] = {}
    for name, module in model.named_modules():
        if not isinstance(module, nn.ModuleList | nn.Sequential) or name in names:
            continue
        children = [_join(name, child) for child, _ in module.named_children()]
        members = [c for c in children if any(n.startswith(c + ".") for n in names)]
        around = [outer for outer in lists if _inside(name, outer)]
        if any(len(lists[outer]) > 1 for outer in around) or not members:
            continue
        for outer in around:  # a list of one is a wrapper, not a stack of blocks
            del lists[outer]
        lists[name] = members
    return [member for members in lists.values() for member in members]


def _join(name: str, child: str) -> str:
    return f"{name}.{child}" if name else child


def _inside(name: str, outer: str) -> bool:
    return outer == "" or name.startswith(outer + ".")


def norm_sites(called: Sequence[str], blocks: Iterable[str]) -> dict[str, Site]:
    """Site of each norm, given the norms' names in the order in which the first forward called them."""
    owner = {name: next((b for b in blocks if name.startswith(b + ".")), None) for name in called}
    order = list(dict.fromkeys(block for block in owner.values() if block))
    number = {block: i for i, block in enumerate(order)}
    inside = [i for i, name in enumerate(called) if owner[name]]
    sites: dict[str, Site] = {}
    taken: set[tuple[int, str]] = set()
    for i, name in enumerate(called):
        block = owner[name]
        if block:
            layer, role = number[block], _role(name[len(block) + 1 :])
        elif inside:
            after = i > inside[0]
            layer, role = (len(order) - 1, "final") if after else (0, "embedding")
        else:
            layer, role = i, _role(name)
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
