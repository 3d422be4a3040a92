"""What AdamW's state says, and the update that it meant, from the formulas of Kingma & Ba (2015) and Loshchilov &
Hutter (2019)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from stabmon.bench.exact.naive.weights import difference, place, update_sq, weight_sq
from stabmon.bench.exact.plan import BETAS, DECAY, EPSILON
from stabmon.bench.exact.twin import Step, Twin

Values = dict[str, float]


@dataclass
class Moments:
    """Of one parameter, bias corrected; float64."""

    gradient: Tensor
    m: Tensor
    v: Tensor

    @property
    def direction(self) -> Tensor:
        """What the learning rate multiplies."""
        return self.m / (self.v.sqrt() + EPSILON)


def moments(twin: Twin, step: Step) -> dict[str, Moments]:
    """By parameter; empty in a step that was skipped."""
    found = {}
    for name, state in step.state.items() if not step.skipped else ():
        taken = float(state["step"])
        m = state["exp_avg"].double() / (1 - BETAS[0] ** taken)
        v = state["exp_avg_sq"].double() / (1 - BETAS[1] ** taken)
        if name in step.used:
            found[name] = Moments(step.used[name].double(), m, v)
    return found


def _means(twin: Twin, step: Step, measure: Callable[[Moments], Tensor]) -> Values:
    """Mean over the coordinates of each place."""
    parts: dict[str, list[Tensor]] = defaultdict(list)
    for name, found in moments(twin, step).items():
        parts[place(twin, name)].append(measure(found).flatten())
    means = {where: float(torch.cat(values).mean()) for where, values in parts.items()}
    return dict.fromkeys((place(twin, name) for name in twin.trained_names), float("nan")) | means


def rms_t_msq(twin: Twin, step: Step) -> Values:
    """g^2 / max(v, eps^2)"""
    return _means(twin, step, lambda of: of.gradient.square() / of.v.clamp_min(EPSILON**2))


def adam_update_msq(twin: Twin, step: Step) -> Values:
    """(m / (sqrt(v) + eps))^2"""
    return _means(twin, step, lambda of: of.direction.square())


def epsilon_share(twin: Twin, step: Step) -> Values:
    """sqrt(v) < 10 eps"""
    return _means(twin, step, lambda of: (of.v.sqrt() < 10 * EPSILON).double())


def _meant(twin: Twin, step: Step) -> dict[str, Tensor]:
    """-lr (m / (sqrt(v) + eps) + decay * weights), by parameter."""
    return {
        name: -step.rate * (of.direction + DECAY * step.before[name].double())
        for name, of in moments(twin, step).items()
    }


def intended_update_sq(twin: Twin, step: Step) -> Values | str:
    """Of weights in halves, as the formula has it; of others, what they moved by."""
    if twin.plan.precision != "pure bf16":
        return update_sq(twin, step)
    return _sums(twin, _meant(twin, step))


def lost_update_sq(twin: Twin, step: Step) -> Values | str:
    """What the weights moved by, less what was meant."""
    if twin.plan.precision != "pure bf16":
        return "only weights that are kept in halves lose part of an update"
    moved = difference(step.after, step.before)
    return _sums(twin, {name: moved[name] - meant for name, meant in _meant(twin, step).items()})


def _sums(twin: Twin, by_parameter: dict[str, Tensor]) -> Values:
    found = dict.fromkeys((place(twin, name) for name in twin.trained_names), 0.0)
    for name, value in by_parameter.items():
        found[place(twin, name)] += float(value.square().sum())
    return found


def _root(square: Naive) -> Naive:
    def root(twin: Twin, step: Step) -> Values | str:
        found = square(twin, step)
        return found if isinstance(found, str) else {where: value**0.5 for where, value in found.items()}

    return root


def _ratio(top: Naive, bottom: Naive) -> Naive:
    def ratio(twin: Twin, step: Step) -> Values | str:
        above, below = top(twin, step), bottom(twin, step)
        if isinstance(above, str) or isinstance(below, str):
            return above if isinstance(above, str) else below
        # Where all weights are 0 both are held at the catalog's floor.
        return {
            where: (max(above[where], 1e-36) / max(below[where], 1e-36)) ** 0.5
            if above[where] == above[where]
            else value
            for where, value in above.items()
        }

    return ratio


Naive = Callable[[Twin, Step], Values | str]
NAIVE: dict[str, Naive] = {
    "rms_t_msq": rms_t_msq,
    "rms_t": _root(rms_t_msq),
    "adam_update_msq": adam_update_msq,
    "adam_update_rms": _root(adam_update_msq),
    "epsilon_share": epsilon_share,
    "intended_update_sq": intended_update_sq,
    "intended_update_norm": _root(intended_update_sq),
    "update_ratio": _ratio(intended_update_sq, weight_sq),
    "lost_update_sq": lost_update_sq,
    "lost_update_ratio": _ratio(lost_update_sq, intended_update_sq),
}
