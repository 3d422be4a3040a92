"""Whether a model that is to predict next tokens sees them: a token is changed, and what was said before it compared.

Shapes: B sequences, T tokens, V values of the output.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from stabmon.taps.probe.calls import Call, cut, cut_targets, tensors_in
from stabmon.taps.probe.returned import IGNORE_INDEX, output_of
from stabmon.taps.probe.swapped import swapped
from stabmon.taps.probe.undisturbed import undisturbed
from stabmon.taps.targets import NO_INPUT, agree

MAX_TOKENS = 256
_NOISE = 10.0
"""Times what the same call differs by when it is made again: kernels that add up in any order, noise in eval mode."""
_ROUNDING = 1e-6
"""Of the largest output at the same place."""
_SAME_LOSS = 1e-5
"""Two losses are one if they differ by less, relatively: at its start a model's are all near ln V."""

_log = logging.getLogger("stabmon")


def looks_ahead(model: nn.Module, call: Call, targets: Tensor | None) -> bool | None:
    """Whether, in most sequences, the output that is to predict a token moves when that token is changed. Never raises.

    `call`: a training call; `targets`: those that the loop gave beside it. None: it is not known to predict next
    tokens (the targets are neither the inputs shifted by one, nor shifted so inside the model), or it does not run.
    """
    try:
        part = cut(call, MAX_TOKENS, inspect.signature(type(call.module or model).forward))
        given = None if targets is None else cut_targets(targets, call, MAX_TOKENS)
        return _judged(model, part, given)
    except Exception as error:  # it is the user's code, run once more
        _log.debug("stabmon: whether the model looks ahead is not known: %r", error)
        return None


def _judged(model: nn.Module, call: Call, targets: Tensor | None) -> bool | None:
    tokens = next(_tokens(call), None)
    if tokens is None or getattr(getattr(model, "config", None), "is_encoder_decoder", False):
        return None
    wanted = [t for t in (targets, call.named("labels"), *_tokens(call)) if t is not None and t.shape == tokens.shape]
    wanted = [t for t in wanted if t is not tokens]
    if not wanted:
        return None
    returned = _answered(model, call)
    shift = next((shifted for t in wanted if (shifted := _shifted(tokens, t, returned)) is not None), None)
    changed, places = (tokens, []) if shift is None else _changed(tokens, shift)
    # As many calls whatever the tokens are: a model may wait for other ranks', whose tokens are others.
    again, after = _answered(model, call), _answered(model, call.map(lambda t: changed if t is tokens else t))
    outputs = [output for answer in (returned, again, after) if (output := output_of(answer, tokens)) is not None]
    if not places or len(outputs) < 3 or outputs[0].shape[:-1] != tokens.shape:
        return None
    votes = list(_votes(outputs, places))
    return 2 * sum(votes) > len(votes) if votes else None


def _tokens(call: Call) -> Iterator[Tensor]:
    """Token ids that the model was given, int[B, T]."""
    named = {name: value for name, value in call.kwargs.items() if not any(part in name for part in NO_INPUT)}
    for given in (*call.args, *named.values()):
        inside = dict(given) if isinstance(given, Mapping) else {"": given}
        inputs = (value for name, value in inside.items() if not any(part in name for part in NO_INPUT))
        yield from (t for t in tensors_in(tuple(inputs)) if t.dtype in (torch.int32, torch.int64) and t.ndim == 2)


def _shifted(tokens: Tensor, wanted: Tensor, returned: Any) -> Tensor | None:
    """What each output but the last is to predict, int[B, T-1]; None: it is not the next token."""
    follows, same = bool(agree(tokens[:, 1:], wanted[:, :-1])), bool(agree(tokens, wanted))
    if follows or not same:
        return wanted[:, :-1] if follows and not same else None
    loss, output = getattr(returned, "loss", None), output_of(returned)
    if loss is None or output is None or output.shape[:-1] != tokens.shape:
        return None
    inside, plain = _cross_entropy(output[:, :-1], wanted[:, 1:]), _cross_entropy(output, wanted)
    apart = [abs(float(loss) - value) > _SAME_LOSS * abs(value) for value in (inside, plain)]
    return wanted[:, 1:] if apart == [False, True] else None


def _cross_entropy(output: Tensor, wanted: Tensor) -> float:
    return float(F.cross_entropy(output.flatten(0, 1).float(), wanted.flatten(), ignore_index=IGNORE_INDEX))


def _changed(tokens: Tensor, shifted: Tensor) -> tuple[Tensor, list[tuple[int, int]]]:
    """Tokens with the last of each sequence that is predicted changed to another one of it, and (sequence, place)."""
    ids, told = tokens.cpu(), (shifted == tokens[:, 1:]).cpu()
    changed, places = ids.clone(), []
    for row, (sequence, predicted) in enumerate(zip(ids, told, strict=True)):
        found = predicted.nonzero()
        place = int(found[-1]) + 1 if len(found) else 0
        others = (sequence[:place] != sequence[place]).nonzero()
        if len(others):
            changed[row, place] = sequence[others[-1]]
            places.append((row, place))
    return changed.to(tokens.device), places


def _votes(outputs: Sequence[Tensor], places: Sequence[tuple[int, int]]) -> Iterator[bool]:
    """Of each sequence in which the change can be seen at all: whether it is seen one place before. `outputs`: of the
    call, of the same again, and after the change."""
    before, again, after = outputs
    for row, place in places:
        own, told = (row, place), (row, place - 1)
        if not bool((after[own] != before[own]).any()):
            continue  # padding
        moved, noise, size = (
            float(x.float().abs().max()) for x in (after[told] - before[told], again[told] - before[told], before[told])
        )
        yield moved > _NOISE * noise + _ROUNDING * size


def _answered(model: nn.Module, call: Call) -> Any:
    """What it returns in eval mode; nothing of it changes."""
    buffers = {id(buffer): buffer.clone() for buffer in model.buffers()}
    with torch.no_grad(), undisturbed(model, call.module):
        return swapped(model, buffers, lambda: call(model))
