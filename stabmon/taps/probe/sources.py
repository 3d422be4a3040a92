"""Where the probe comes from: the loop's first training call, or a batch that the user gives."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from torch import Tensor, nn

from stabmon.settings import Settings
from stabmon.taps.notices import Notice, Notices
from stabmon.taps.parts import Parts
from stabmon.taps.probe.calls import Call, affordable, cut, cut_targets, shortest, tensors_in
from stabmon.taps.probe.fitting import fit, room_for, standing_in
from stabmon.taps.probe.probe import Probe
from stabmon.taps.probe.returned import output_of
from stabmon.taps.probe.undisturbed import device_of
from stabmon.taps.ranks.sharding import hides_parameters, is_shared

MAX_TOKENS = 512
MAX_PARAMETERS = 10**9

_FREE = 12
"""Bytes for each parameter: half as much again as a float32 copy and a gradient take."""

Source = Callable[[], Probe | None]
"""Gives the probe; None: there is none, or not yet."""


def given_probe(model: nn.Module, settings: Settings) -> Probe | None:
    """The probe of the user's own batch, tried once; None: none was given, or it is not all on this rank.

    ValueError: `probe` is no batch, or the model cannot be called with it.
    """
    if settings.probe is None or spread(model):
        return None
    kind, call = type(settings.probe).__name__, call_with(settings.probe, settings.forward)
    if not any(tensor.numel() for tensor in call.tensors):
        raise ValueError(
            f"probe={kind}: holds no tensor, or only empty ones; give a batch as the model takes it: a tensor, tuple "
            "or dict"
        )
    signature = None if settings.forward else inspect.signature(type(model).forward)
    device = device_of(model)
    part = cut(call, MAX_TOKENS, signature).map(lambda tensor: tensor.to(device))
    try:
        return fit(model, part)
    except Exception as error:
        how = "forward(model, probe)" if settings.forward else f"{type(model).__name__} called with probe={kind}"
        raise ValueError(
            f"probe: {how} raised {type(error).__name__}: {error}. Give probe=batch as the model takes it (a dict by "
            "name, a tuple by position), or forward=function that calls the model for it and returns its output"
        ) from error


def source_of(
    given: Probe | None,
    parts: Parts,
    settings: Settings,
    first_targets: Callable[[], Tensor | None],
) -> Source:
    """The given probe, else the first training call; nothing where that would be wrong, or cost too much unasked."""
    model, first_call = parts.model, parts.forward.take_first
    norms = [norm.module for norm in parts.norms]
    if given is not None:
        return _instead(first_call, standing_in(given, norms))
    asked = "probe_every" in settings.model_fields_set
    if not asked and (count := sum(p.numel() for p in model.parameters())) > MAX_PARAMETERS:
        _refuse(parts.notices, f"copies of {count / 1e9:.1f} billion parameters take much memory")
        return _instead(first_call, None)
    return FirstCall(model, norms, first_call, first_targets, asked=asked, notices=parts.notices)


def _refuse(notices: Notices, why: str) -> None:
    """Unless the user asks for it."""
    notices.say(
        Notice(
            f"the output change of an update is not read: {why}. To have it read, give probe_every or probe",
            what="the output change of an update",
            why=f"{why[0].upper()}{why[1:]}.",
            todo="To have it read, give probe_every or probe.",
        )
    )


class FirstCall:
    """The first training call that was seen, cut to `max_tokens`, else to what is affordable.

    Unless it was `asked` for, there is none where little memory is left.
    """

    def __init__(
        self,
        model: nn.Module,
        norms: Sequence[nn.Module],
        first_call: Callable[[], Call | None],
        first_targets: Callable[[], Tensor | None] = lambda: None,
        max_tokens: int | None = None,
        asked: bool = True,
        notices: Notices | None = None,
    ) -> None:
        self._model = model
        self._norms = norms
        self._first_call = first_call
        self._first_targets = first_targets
        self._max_tokens = max_tokens
        self._asked = asked
        self._notices = notices or Notices()

    def __call__(self) -> Probe | None:
        call, targets = self._first_call(), self._first_targets()
        if call is None:
            return None
        if not (self._asked or room_for(self._model, _FREE)):
            _refuse(self._notices, "little memory is free")
            return None
        signature = inspect.signature(type(call.module or self._model).forward)

        def fitted(tokens: int) -> Probe:
            aligned = None if targets is None else cut_targets(targets, call, tokens)
            return fit(self._model, cut(call, tokens, signature), aligned, self._norms)

        return shortest(call, self._max_tokens or affordable(call), fitted)


def call_with(batch: Any, forward: Callable[..., Any] | None = None) -> Call:
    """The model called with a batch: a mapping by name, a tuple or list by position, all else as the one argument."""
    if forward is not None:
        return Call((batch,), {}, forward=partial(_returning, forward))
    if isinstance(batch, Mapping):
        return Call((), dict(batch))
    return Call(tuple(batch) if isinstance(batch, tuple | list) else (batch,), {})


def _returning(forward: Callable[..., Any], model: nn.Module, batch: Any) -> Any:
    """What `forward` returns; TypeError: no tensor."""
    returned = forward(model, batch)
    if output_of(returned) is None and not any(True for _ in tensors_in(returned)):
        raise TypeError(f"{type(returned).__name__} returned, and neither logits nor (loss, logits)")
    return returned


def spread(model: nn.Module) -> bool:
    """Whether this rank holds parts of the parameters only, so that it cannot run the model by itself."""
    return hides_parameters(model) is not None or any(is_shared(p) for p in model.parameters())


def _instead(first_call: Callable[[], Call | None], probe: Probe | None) -> Source:
    def take() -> Probe | None:
        first_call()  # it holds a whole batch, and is let go of
        return probe

    return take
