"""The scale of the output's logits, over the tokens whose labels count in the loss."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from stabmon.bench.exact.naive.tokens import counting
from stabmon.bench.exact.twin import Call, Step, Twin

Values = dict[str, float]


def _logits(twin: Twin, step: Step) -> Tensor | None:
    """float64[N, V] of all calls; None: the output is no logits."""
    rows = []
    for call in step.calls:
        output = call.outputs[""][0]
        if "logits" not in output:
            return None
        rows.append(output["logits"].double()[_counted(twin, call, output["logits"])])
    return torch.cat(rows)


def _counted(twin: Twin, call: Call, logits: Tensor) -> Tensor:
    """bool[...]: a token with a label; a model that shifts its labels has the next token's."""
    counts = counting(call, logits.shape[:-1], first=True).clone()
    labels = call.batch["labels"]
    if labels.shape != counts.shape:
        return counts
    labelled = labels != -100
    if twin.plan.family.shifts:
        labelled = torch.cat((labelled[:, 1:], torch.zeros_like(labelled[:, :1])), 1)
    return counts & labelled


def _of_logits(measure: Callable[[Tensor], Tensor]) -> Callable[[Twin, Step], Values | str]:
    def naive(twin: Twin, step: Step) -> Values | str:
        logits = _logits(twin, step)
        return "the output is no logits" if logits is None else {"": float(measure(logits))}

    return naive


NAIVE: dict[str, Callable[[Twin, Step], Values | str]] = {
    "log_z": _of_logits(lambda logits: logits.exp().sum(-1).log().mean()),
    "log_z_msq": _of_logits(lambda logits: logits.exp().sum(-1).log().square().mean()),
    "logit_max": _of_logits(lambda logits: logits.abs().max()),
    "logit_mean": _of_logits(lambda logits: logits.mean()),
}
