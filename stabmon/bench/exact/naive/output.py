"""What an update does to the model's output on the first training call, which is short enough to be the whole probe.

Two copies of the model in float64 and eval mode, before and after the step. Shapes: P positions, V outputs of each.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from stabmon.bench.exact.naive.weights import difference, place
from stabmon.bench.exact.twin import Step, Tensors, Twin

Values = dict[str, float]


@dataclass
class Said:
    """What the model says of the probe."""

    z_PV: Tensor
    """Output, minus its mean over V."""
    loss: Tensor
    """With its graph."""
    model: nn.Module


def said(twin: Twin, step: Step, parameters: Tensors) -> Said:
    """At those values of the parameters."""
    model = twin.at(parameters, step)
    batch = {k: v.double() if v.is_floating_point() else v for k, v in twin.plan.batches[0][0].items()}
    answer = model(**batch)
    z = answer[_output(answer)].detach().double().flatten(0, -2)
    return Said(z - z.mean(-1, keepdim=True), answer["loss"], model)


def _output(answer: dict[str, Tensor]) -> str:
    return "logits" if "logits" in answer else "sample"


def _slopes(of: Said) -> dict[str, Tensor]:
    """Gradient of the loss by parameter."""
    named = dict(of.model.named_parameters())
    slopes = torch.autograd.grad(of.loss, list(named.values()), allow_unused=True, retain_graph=True)
    return {name: slope for name, slope in zip(named, slopes, strict=True) if slope is not None}


def _before(twin: Twin, step: Step) -> Said:
    return twin.once(("before", step.number), lambda: said(twin, step, step.before))


def _after(twin: Twin, step: Step) -> Said:
    return twin.once(("after", step.number), lambda: said(twin, step, step.after))


def _msq(x: Tensor) -> float:
    return float(x.square().mean())


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


def _change(twin: Twin, step: Step) -> Tensor:
    return _after(twin, step).z_PV - _before(twin, step).z_PV


def output_change_msq(twin: Twin, step: Step) -> Values:
    """Of the difference."""
    return {"": _msq(_change(twin, step))} if not step.skipped else {"": float("nan")}


def output_change_context_msq(twin: Twin, step: Step) -> Values:
    """Of the difference, minus its mean over the positions."""
    change = _change(twin, step)
    return {"": _msq(change - change.mean(0))} if not step.skipped else {"": float("nan")}


def output_change_kl(twin: Twin, step: Step) -> Values:
    """sum p ln(p / q), averaged over the positions."""
    p, q = (torch.log_softmax(said.z_PV, -1) for said in (_before(twin, step), _after(twin, step)))
    kl = float((p.exp() * (p - q)).sum(-1).mean())
    return {"": kl} if not step.skipped else {"": float("nan")}


def actual_loss_change(twin: Twin, step: Step) -> Values:
    """After minus before."""
    change = float((_after(twin, step).loss - _before(twin, step).loss).detach())
    return {"": change} if not step.skipped else {"": float("nan")}


def predicted_loss_change(twin: Twin, step: Step) -> Values:
    """Gradient times update."""
    slopes, update = _slopes(_before(twin, step)), difference(step.after, step.before)
    change = sum(float((slope * update[name]).sum()) for name, slope in slopes.items())
    return {"": change} if not step.skipped else {"": float("nan")}


def block_output_change_msq(twin: Twin, step: Step) -> Values:
    """Of the difference when one place alone takes its update; read in the first step and every tenth."""
    found = {}
    for where in dict.fromkeys(place(twin, name) for name in twin.trained_names):
        moved = {name: value for name, value in step.after.items() if place(twin, name) == where}
        if step.number == 1:
            change = said(twin, step, {**step.before, **moved}).z_PV - _before(twin, step).z_PV
        found[where] = _msq(change) if step.number == 1 else float("nan")
    return found


def block_output_msq(twin: Twin, step: Step) -> Values:
    """The same for every place."""
    places = dict.fromkeys(place(twin, name) for name in twin.trained_names)
    value = output_msq(twin, step)[""] if step.number == 1 else float("nan")
    return dict.fromkeys(places, value)


def _ratio(top: Naive, bottom: Naive, power: float = 0.5) -> Naive:
    def ratio(twin: Twin, step: Step) -> Values | str:
        above, below = top(twin, step), bottom(twin, step)
        if isinstance(above, str) or isinstance(below, str):
            return above if isinstance(above, str) else below
        return {where: (above[where] / below[where]) ** power for where in above}

    return ratio


Naive = Callable[[Twin, Step], Values | str]
NAIVE: dict[str, Naive] = {
    **{
        function.__name__: function
        for function in (
            probe_loss, probe_context_share, output_msq, output_change_msq, output_change_context_msq,
            output_change_kl, actual_loss_change, predicted_loss_change, block_output_change_msq, block_output_msq,
        )
    },
    "total_output_change_ratio": _ratio(output_change_msq, output_msq),
    "output_change_context_ratio": _ratio(output_change_context_msq, output_change_msq),
    "trust_ratio": _ratio(actual_loss_change, predicted_loss_change, power=1.0),
    "output_change_ratio": _ratio(block_output_change_msq, block_output_msq),
}  # fmt: skip
