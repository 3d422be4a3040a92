"""Gradients, weights and updates by block: a block, or outside the blocks the module that holds the parameter."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Callable, Mapping

from torch import Tensor

from stabmon.bench.exact.twin import Step, Tensors, Twin

Values = dict[str, float]


def place(twin: Twin, parameter: str) -> str:
    """The block that a parameter belongs to, else the module that holds it."""
    for pattern in twin.plan.family.blocks:
        if found := re.match(rf"{pattern}(?=\.)", parameter):
            return found.group()
    return parameter.rpartition(".")[0] or parameter


def by_place(twin: Twin, tensors: Mapping[str, Tensor]) -> dict[str, list[Tensor]]:
    """float64 tensors of the trained parameters of each place."""
    found: dict[str, list[Tensor]] = defaultdict(list)
    for name in twin.trained_names:
        if name in tensors:
            found[place(twin, name)].append(tensors[name].double())
    return found


def _square(tensors: list[Tensor]) -> float:
    """Inf where a value is not finite."""
    total = sum(float(tensor.square().sum()) for tensor in tensors)
    return total if math.isfinite(total) else math.inf


def _squares(twin: Twin, tensors: Mapping[str, Tensor]) -> Values:
    found = {place(twin, name): float("nan") for name in twin.trained_names}
    return found | {where: _square(held) for where, held in by_place(twin, tensors).items()}


def grad_sq(twin: Twin, step: Step) -> Values:
    """Of the gradients before clipping."""
    return _squares(twin, step.gradients)


def total_grad_sq(twin: Twin, step: Step) -> Values:
    """Of all of them."""
    return {"": _square([gradient.double() for gradient in step.gradients.values()])}


def weight_sq(twin: Twin, step: Step) -> Values | str:
    """Of the parameters before the step."""
    return _skipped(step, twin) or _squares(twin, step.before)


def update_sq(twin: Twin, step: Step) -> Values | str:
    """Of what the step did to them."""
    return _skipped(step, twin) or _squares(twin, difference(step.after, step.before))


def difference(after: Tensors, before: Tensors) -> dict[str, Tensor]:
    """float64"""
    return {name: after[name].double() - before[name].double() for name in after}


def _skipped(step: Step, twin: Twin) -> Values:
    """A step that was left out has no update."""
    return {place(twin, name): float("nan") for name in twin.trained_names} if step.skipped else {}


def _root(square: Callable[[Twin, Step], Values | str]) -> Callable[[Twin, Step], Values | str]:
    def root(twin: Twin, step: Step) -> Values | str:
        found = square(twin, step)
        return found if isinstance(found, str) else {where: value**0.5 for where, value in found.items()}

    return root


NAIVE: dict[str, Callable[[Twin, Step], Values | str]] = {
    "grad_sq": grad_sq,
    "grad_norm": _root(grad_sq),
    "total_grad_sq": total_grad_sq,
    "total_grad_norm": _root(total_grad_sq),
    "weight_sq": weight_sq,
    "weight_norm": _root(weight_sq),
    "update_sq": update_sq,
    "update_norm": _root(update_sq),
}
