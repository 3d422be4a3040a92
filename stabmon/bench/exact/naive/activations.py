"""The largest values that go into the norm layers, over all tokens that are no padding."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from stabmon.bench.exact.naive.norms import norm_input_msq, tokens
from stabmon.bench.exact.naive.tokens import counting
from stabmon.bench.exact.twin import Step, Twin

Values = dict[str, float]


def _inputs(twin: Twin, step: Step, name: str) -> Tensor:
    """float64[N, D] of all calls of the norm, and its padding left out."""
    module, kind = twin.norms[name]
    found = []
    for call in step.calls:
        for x in call.into(name):
            x_ND = tokens(module, kind, x.double())
            counts = counting(call, x.shape[:-1], first=True).flatten()
            found.append(x_ND[counts] if len(counts) == len(x_ND) else x_ND)
    return torch.cat(found)


def activation_max(twin: Twin, step: Step) -> Values:
    """|x|"""
    return {name: float(_inputs(twin, step, name).abs().max()) for name in twin.norms}


def activation_max_channel(twin: Twin, step: Step) -> Values:
    """The channel that it lies in; of maxima that are alike in their first 8 bits, the highest channel."""
    found = {}
    for name in twin.norms:
        largest = [_rounded(value) for value in _inputs(twin, step, name).abs().amax(0).tolist()]
        found[name] = float(max(d for d, value in enumerate(largest) if value == max(largest)))
    return found


def _rounded(value: float) -> float:
    """Down to 8 bits."""
    if value == 0:
        return 0.0
    unit = 2.0 ** (math.floor(math.log2(value)) - 7)
    return math.floor(value / unit) * unit


def activation_crest(twin: Twin, step: Step) -> Values:
    """Over the root mean square, which is of the tokens that count in means."""
    squares = norm_input_msq(twin, step)
    return {name: value / squares[name] ** 0.5 for name, value in activation_max(twin, step).items()}


def precision_headroom(twin: Twin, step: Step) -> Values:
    """In nats, of the type that the input has."""
    dtypes = {name: step.calls[0].into(name)[0].dtype for name in twin.norms}
    return {
        name: math.log(torch.finfo(dtypes[name]).max) - math.log(value)
        for name, value in activation_max(twin, step).items()
    }


def range_used(twin: Twin, step: Step) -> Values:
    """The same, the other way round."""
    return {name: -value for name, value in precision_headroom(twin, step).items()}


NAIVE: dict[str, Callable[[Twin, Step], Values | str]] = {
    function.__name__: function
    for function in (activation_max, activation_max_channel, activation_crest, precision_headroom, range_used)
}
