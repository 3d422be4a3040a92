"""Hidden units of the feed-forward parts: what goes into their last linear layer, one unit after the other."""

from __future__ import annotations

import re
from collections.abc import Callable

import torch
from torch import Tensor

from stabmon.bench.exact.naive.tokens import counting
from stabmon.bench.exact.twin import Step, Twin

Values = dict[str, float]

_LAST = re.compile(
    r"(blocks\.\d+\.mlp\.2|layers\.\d+\.(linear2|mlp\.down_proj|mlp\.fc2|pwconv2)|h\.\d+\.mlp\.c_proj"
    r"|layer\.\d+\.output\.dense|DenseReluDense\.wo)$"
)
"""Names of these layers in the bench's models."""


def _hidden(twin: Twin, step: Step) -> dict[str, Tensor]:
    """float64[N, U] by layer: all tokens of the step that are no padding."""
    found: dict[str, Tensor] = {}
    for name in (name for name, _ in twin.model.named_modules() if _LAST.search(name)):
        rows = []
        for call in step.calls:
            for x in call.into(name):
                counts = counting(call, x.shape[:-1], first=True)
                rows.append(x.double()[counts])
        found[name] = torch.cat(rows)
    return found


def _share(dead: Callable[[Tensor, float], bool]) -> Callable[[Twin, Step], Values | str]:
    def naive(twin: Twin, step: Step) -> Values | str:
        found = {}
        for name, x_NU in _hidden(twin, step).items():
            mean = float(x_NU.abs().mean())
            found[name] = sum(dead(unit_N.abs(), mean) for unit_N in x_NU.T) / x_NU.shape[1]
        return found or "no feed-forward parts of linear layers in this model"

    return naive


NAIVE: dict[str, Callable[[Twin, Step], Values | str]] = {
    "dead_unit_share": _share(lambda unit_N, mean: float(unit_N.max()) <= mean / 100),
    "saturated_unit_share": _share(lambda unit_N, _: float(unit_N.min()) > 0.999 and float(unit_N.max()) <= 1),
}
