"""What the model is, found after its first step: where each norm sits, in a sentence, and what is not seen of it."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from torch import Tensor

from stabmon.taps.model.ahead import looks_ahead
from stabmon.taps.model.placement import classify, sentence
from stabmon.taps.model.tracing import Trace, trace
from stabmon.taps.parts import Parts
from stabmon.taps.probe.calls import cut, shortest
from stabmon.taps.ranks.sharding import hides_parameters, is_shared

MAX_TOKENS = 64
_log = logging.getLogger("stabmon")


@dataclass(frozen=True)
class Architecture:
    """Placements by norm, and what is told of them."""

    placements: Mapping[str, str] = field(default_factory=dict)
    """Norm -> one of `records.PLACEMENTS`; a norm whose place is not known has none."""
    detail: Mapping[str, float | str] = field(default_factory=dict)
    """`description`, a sentence; `tokens`, which count in means; where there are any, `not_seen`: norms that are no
    layers; where it is known, `looks_ahead`: 1 if next tokens are seen before they are predicted, else 0."""


def recognise(parts: Parts, given: str | Mapping[str, str] = "", targets: Tensor | None = None) -> Architecture:
    """Follows one forward of the latest training call's first tokens, in eval mode. Never raises.

    `given`: the placement of the norms in blocks, or of those whose names fit a pattern, over what is found; `targets`:
    of that call.
    """
    found = _follow(parts)
    placed = {} if found is None else classify(found, parts.blocks)
    placed = {name: placed.get(name, "") for name in parts.norm_tap.sites}
    told = {name: _given(name, given, parts.blocks) or kind for name, kind in placed.items()}
    described = sentence(told, len(parts.blocks))
    detail: dict[str, float | str] = {"description": described, "tokens": parts.forward.counted}
    hint = "; the setting placement can tell it" if "placement unknown" in described else ""
    _log.info("stabmon: %s: %s%s", type(parts.model).__name__, described, hint)
    if found is not None and found.functional:
        detail["not_seen"] = ", ".join(sorted(found.functional))
        _log.warning("stabmon: normalised by a function and not by a layer, so not seen: %s", detail["not_seen"])
    call = None if found is None else parts.forward.last
    if call is not None and (ahead := looks_ahead(parts.model, call, targets)) is not None:
        detail["looks_ahead"] = float(ahead)
    return Architecture({name: kind for name, kind in told.items() if kind}, detail)


def _follow(parts: Parts) -> Trace | None:
    """None where it cannot be: the loop calls the model in pieces, or each rank holds a part of it."""
    call, model = parts.forward.last, parts.model
    sharded = hides_parameters(model) is not None or any(is_shared(p) for p in model.parameters())
    if call is None or not parts.forward.whole or sharded:
        return None
    try:
        signature = inspect.signature(type(call.module or model).forward)
        norms = [norm.name for norm in parts.norms]
        return shortest(call, MAX_TOKENS, lambda n: trace(model, cut(call, n, signature), norms, parts.blocks))
    except Exception as error:  # it is the user's code, run once more
        _log.warning("stabmon: where the norms sit is not known, since a forward in eval mode failed: %r", error)
        return None


def _given(name: str, given: str | Mapping[str, str], blocks: Sequence[str]) -> str:
    if isinstance(given, str):
        return given if given and any(name.startswith(f"{block}.") for block in blocks) else ""
    return next((kind for pattern, kind in given.items() if fnmatchcase(name, pattern)), "")
