"""What an update does to the model's output on the first training call, which is short enough to be the whole probe.

Copies of the model in float64 and eval mode, before and after the step. Shapes: P positions that are no padding, V
outputs of each.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from stabmon.bench.exact.naive.weights import difference, place
from stabmon.bench.exact.twin import Step, Tensors, Twin

Values = dict[str, float]
Naive = Callable[[Twin, Step], Values | str]

COTANGENTS = 4
"""Of an estimate: the standard error of its root is 1 / sqrt(8)."""
_STRIDE = 1e-5
"""Part of an update that is taken for a derivative."""


@dataclass
class Said:
    """What the model says of the probe."""

    z_PV: Tensor
    """Output, of classes minus its mean over V."""
    loss: Tensor
    """With its graph."""
    model: nn.Module


def said(twin: Twin, step: Step, parameters: Tensors) -> Said:
    """At those values of the parameters."""
    model = twin.at(parameters, step)
    batch = {k: v.double() if v.is_floating_point() else v for k, v in twin.plan.batches[0][0].items()}
    answer = model(**batch)
    output = answer["logits"] if "logits" in answer else answer["sample"].movedim(1, -1)
    z_PV = output.detach().double()[_positions(twin, output)]
    z_PV = z_PV - z_PV.mean(-1, keepdim=True) if "logits" in answer else z_PV
    return Said(z_PV, answer["loss"], model)


def _positions(twin: Twin, output: Tensor) -> Tensor:
    """bool[...]: no padding."""
    mask = twin.plan.batches[0][0].get("attention_mask")
    if mask is not None and mask.shape == output.shape[:-1]:
        return mask.bool()
    return torch.ones(output.shape[:-1], dtype=torch.bool)


def _slopes(of: Said) -> dict[str, Tensor]:
    """Gradient of the loss by parameter."""
    named = dict(of.model.named_parameters())
    slopes = torch.autograd.grad(of.loss, list(named.values()), allow_unused=True, retain_graph=True)
    return {name: slope.double() for name, slope in zip(named, slopes, strict=True) if slope is not None}


def _before(twin: Twin, step: Step) -> Said:
    return twin.once(("before", step.number), lambda: said(twin, step, step.before))


def _after(twin: Twin, step: Step) -> Said:
    return twin.once(("after", step.number), lambda: said(twin, step, step.after))


def _msq(x: Tensor) -> float:
    return float(x.square().mean())


def _places(twin: Twin) -> list[str]:
    return list(dict.fromkeys(place(twin, name) for name in twin.trained_names))


def estimated(step: Step) -> bool:
    """Whether stabmon estimates the change by each place alone: but in the first step, and every tenth."""
    return step.number > 1


def _change(twin: Twin, step: Step, where: str | None = None) -> Tensor:
    """By the whole update or one place's: the difference, or what an estimate is of, its derivative in float64."""

    def work() -> Tensor:
        moves = difference(step.after, step.before)
        moves = {n: m for n, m in moves.items() if where is None or place(twin, n) == where}
        if where is not None and estimated(step):
            return _derivative(twin, step, moves)
        if where is None:
            return _after(twin, step).z_PV - _before(twin, step).z_PV
        moved = {name: step.after[name] for name in moves}
        return said(twin, step, {**step.before, **moved}).z_PV - _before(twin, step).z_PV

    return twin.once(("change", step.number, where), work)


def _derivative(twin: Twin, step: Step, moves: Tensors) -> Tensor:
    """Central difference of a small part of the update."""
    ends = []
    for sign in (1, -1):
        moved = {name: step.before[name].double() + sign * _STRIDE * move for name, move in moves.items()}
        ends.append(said(twin, step, {**step.before, **moved}).z_PV)
    return (ends[0] - ends[1]) / (2 * _STRIDE)


def probe_loss(twin: Twin, step: Step) -> Values:
    """Before the step."""
    return {"": float(_before(twin, step).loss.detach())}


def probe_context_share(twin: Twin, step: Step) -> Values:
    """Before the step: what is left of the output when its mean over the positions is taken away."""
    z_PV = _before(twin, step).z_PV
    return {"": _msq(z_PV - z_PV.mean(0)) / _msq(z_PV)}


def output_msq(twin: Twin, step: Step) -> Values:
    """Before the step."""
    return {"": _msq(_before(twin, step).z_PV)}


def output_change_msq(twin: Twin, step: Step) -> Values:
    """Of the change."""
    return {"": _msq(_change(twin, step))}


def output_change_context_msq(twin: Twin, step: Step) -> Values:
    """Of the change, minus its mean over the positions."""
    change = _change(twin, step)
    return {"": _msq(change - change.mean(0))}


def output_change_kl(twin: Twin, step: Step) -> Values | str:
    """sum p ln(p / q), averaged over the positions."""
    if "logits" not in step.calls[0].outputs[""][0]:
        return "the output is no logits"
    z_PV, change = _before(twin, step).z_PV, _change(twin, step)
    p = torch.softmax(z_PV, -1)
    log_q = torch.log_softmax(z_PV + change, -1)
    return {"": float((p * (p.log() - log_q)).sum(-1).mean())}


def output_change_error(twin: Twin, step: Step) -> Values:
    """The whole change is a difference."""
    return {"": 0.0}


def block_output_change_error(twin: Twin, step: Step) -> Values:
    """That of the root of an estimate."""
    return {"": 1 / math.sqrt(2 * COTANGENTS) if estimated(step) else 0.0}


def actual_loss_change(twin: Twin, step: Step) -> Values:
    """After minus before."""
    return {"": float((_after(twin, step).loss - _before(twin, step).loss).detach())}


def predicted_loss_change(twin: Twin, step: Step) -> Values:
    """Gradient times update."""
    slopes, update = _slopes(_before(twin, step)), difference(step.after, step.before)
    return {"": sum(float((slope * update[name]).sum()) for name, slope in slopes.items())}


def block_output_change_msq(twin: Twin, step: Step) -> Values:
    """Of the change when one place alone takes its update."""
    return {where: _msq(_change(twin, step, where)) for where in _places(twin)}


def block_output_msq(twin: Twin, step: Step) -> Values:
    """The same for every place."""
    return dict.fromkeys(_places(twin), output_msq(twin, step)[""])


def _unless_skipped(naive: Naive) -> Naive:
    """A step that was left out changes nothing."""

    def unless(twin: Twin, step: Step) -> Values | str:
        return {} if step.skipped else naive(twin, step)

    return unless


def _ratio(top: Naive, bottom: Naive, power: float = 0.5) -> Naive:
    def ratio(twin: Twin, step: Step) -> Values | str:
        above, below = top(twin, step), bottom(twin, step)
        if isinstance(above, str) or isinstance(below, str):
            return above if isinstance(above, str) else below
        return {where: (above[where] / below[where]) ** power for where in above}

    return ratio


_OF_UPDATE: dict[str, Naive] = {
    "output_change_msq": output_change_msq,
    "output_change_context_msq": output_change_context_msq,
    "output_change_kl": output_change_kl,
    "output_change_error": output_change_error,
    "block_output_change_error": block_output_change_error,
    "actual_loss_change": actual_loss_change,
    "predicted_loss_change": predicted_loss_change,
    "block_output_change_msq": block_output_change_msq,
    "block_output_msq": block_output_msq,
    "total_output_change_ratio": _ratio(output_change_msq, output_msq),
    "output_change_context_ratio": _ratio(output_change_context_msq, output_change_msq),
    "trust_ratio": _ratio(actual_loss_change, predicted_loss_change, power=1.0),
    "output_change_ratio": _ratio(block_output_change_msq, block_output_msq),
}
NAIVE: dict[str, Naive] = {
    "probe_loss": probe_loss,
    "probe_context_share": probe_context_share,
    "output_msq": output_msq,
    **{name: _unless_skipped(naive) for name, naive in _OF_UPDATE.items()},
}
