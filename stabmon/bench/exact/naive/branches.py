"""What sub-layers add to the residual stream. Shapes: N tokens (pictures: whole samples), D features."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from stabmon.bench.exact.naive.tokens import counting
from stabmon.bench.exact.twin import Call, Step, Twin

Values = dict[str, float]
Naive = Callable[[Twin, Step], Values | str]


def _blocks(twin: Twin) -> Iterator[str]:
    for name, _ in twin.model.named_modules():
        if any(re.fullmatch(pattern, name) for pattern in twin.plan.family.blocks):
            yield name


def _at(call: Call, block: str, point: str) -> list[Tensor]:
    """What passed a point such as `in:norm` (into a module of the block) or `out:mlp`; `in:` is the block's input."""
    side, _, module = point.partition(":")
    name = f"{block}.{module}" if module else block
    return call.into(name) if side == "in" else call.out_of(name)


def _added(call: Call, block: str, branch: str) -> list[Tensor]:
    if branch != "change":
        return _at(call, block, branch)
    return [
        after.double() - before.double() for after, before in zip(call.out_of(block), call.into(block), strict=True)
    ]


def _sums(twin: Twin, step: Step) -> Iterator[tuple[str, Tensor, Tensor, float]]:
    """(sub-layer, trunk[N, D], branch[N, D], relative distance of numbers in the sum's type), float64."""
    for block in _blocks(twin):
        for sublayer, (trunk, branch) in twin.plan.family.sums.items():
            for call in step.calls:
                for x, f in zip(_at(call, block, trunk), _added(call, block, branch), strict=True):
                    rows = x.flatten(0, -2) if x.ndim <= 3 else x.flatten(1)
                    counts = counting(call, x.shape[:-1]).flatten() if x.ndim <= 3 else torch.ones(len(x)).bool()
                    eps = torch.finfo(torch.promote_types(x.dtype, f.dtype)).eps
                    yield f"{block}.{sublayer}", rows.double()[counts], f.reshape(rows.shape).double()[counts], eps


def _of_sums(measure: Callable[[Tensor, Tensor, float], Tensor]) -> Naive:
    """Mean over the tokens of a step; `measure` gives one number for each."""

    def naive(twin: Twin, step: Step) -> Values | str:
        if twin.plan.family.no_sums:
            return twin.plan.family.no_sums
        if step.number == 1 and not twin.plan.loop.compiled:
            return {}  # it is looked through for the sums; a compiled model is before its first call
        found: dict[str, list[Tensor]] = {}
        for sublayer, x_ND, f_ND, eps in _sums(twin, step):
            found.setdefault(sublayer, []).append(measure(x_ND, f_ND, eps))
        return {sublayer: float(torch.cat(values).mean()) for sublayer, values in found.items()}

    return naive


def _swamped(x_ND: Tensor, f_ND: Tensor, eps: float) -> Tensor:
    return ((f_ND != 0) & (f_ND.abs() < eps / 4 * x_ND.abs())).double().mean(-1)


def swamped_share(twin: Twin, step: Step) -> Values | str:
    """Of a change of the stream it is not known what has left no trace in it."""
    if any(branch == "change" for _, branch in twin.plan.family.sums.values()):
        return "the sum itself is not seen, only what an activation makes of it"
    return _of_sums(_swamped)(twin, step)


def branch_ratio(twin: Twin, step: Step) -> Values | str:
    """Roots of the two mean squares."""
    branch, trunk = NAIVE["branch_msq"](twin, step), NAIVE["trunk_msq"](twin, step)
    if isinstance(branch, str) or isinstance(trunk, str):
        return twin.plan.family.no_sums
    return {sublayer: (value / trunk[sublayer]) ** 0.5 for sublayer, value in branch.items()}


NAIVE: dict[str, Naive] = {
    "branch_msq": _of_sums(lambda x, f, eps: f.square().mean(-1)),
    "trunk_msq": _of_sums(lambda x, f, eps: x.square().mean(-1)),
    "branch_cosine": _of_sums(lambda x, f, eps: (x * f).sum(-1) / (x.norm(dim=-1) * f.norm(dim=-1))),
    "swamped_share": swamped_share,
    "branch_ratio": branch_ratio,
}
