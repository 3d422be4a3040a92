"""The two ways to tell how far an update moves the probe's output: by exact differences, or by estimates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from stabmon.records import Site
from stabmon.taps.probe.cotangents import Cotangents
from stabmon.taps.probe.divergence import kl_divergence, mean, mean_square
from stabmon.taps.probe.probe import Answer, Probe

Found = dict[tuple[str, Site], Tensor]
Values = Mapping[str, Tensor]
_ROUNDINGS = 64
"""A loss change of fewer roundings of the loss itself is not read."""
_HALF = torch.finfo(torch.bfloat16).eps


@dataclass(frozen=True, slots=True)
class _State:
    """An answer without its graph."""

    z: Tensor | None
    weights: Tensor | None
    classes: bool
    loss: Tensor | None
    supervised: Tensor

    @staticmethod
    def of(answer: Answer) -> _State:
        z, loss = (None if t is None else t.detach() for t in (answer.z, answer.loss))
        return _State(z, answer.weights, answer.classes, loss, answer.supervised)


@dataclass(frozen=True)
class Exact:
    """Differences of float32 outputs; a block's is that of swapping in its update alone.

    `cotangents`: estimate the blocks' changes where they are not read exactly; None: leave them.
    """

    probe: Probe
    blocks: Mapping[Site, Sequence[str]]
    cotangents: Cotangents | None = None

    def measure(self, before: Values, now: Values, blocks: bool, seed: int) -> Found:
        estimate = None if blocks or not before else self.cotangents

        def look(answer: Answer) -> tuple[_State, Tensor | None, Tensor | None]:
            guess = None if estimate is None or answer.z is None else estimate.block_changes(answer, now, seed)
            return _State.of(answer), answer.slope(now), guess

        old, slope, changes = self.probe(before, look)
        whole = _described(old)
        if not before:
            return _placed(whole)
        new = self.probe(now, _State.of)
        whole |= _differences(old, new)
        if old.loss is not None:
            whole |= _losses(old.loss, new.loss, slope, old.supervised, _ROUNDINGS * torch.finfo(old.loss.dtype).eps)
        error = 0.0 if estimate is None else estimate.standard_error
        changes = self._swapped(old, before, now) if blocks else changes
        return _placed(whole, self.blocks, changes, error)

    def _swapped(self, old: _State, before: Values, now: Values) -> Tensor | None:
        """float32[block]."""
        if old.z is None or not self.blocks:
            return None
        changes = []
        for names in self.blocks.values():
            z = self.probe({**before, **{name: now[name] for name in names if name in now}}, _State.of).z
            assert z is not None  # the same call gave an output a moment ago
            changes.append(mean_square(z - old.z, old.weights))
        return torch.stack(changes)


@dataclass(frozen=True)
class Estimated:
    """First-order estimates at theta_t, for models whose outputs are rounded too coarsely to be compared."""

    probe: Probe
    blocks: Mapping[Site, Sequence[str]]
    cotangents: Cotangents

    def measure(self, before: Values, now: Values, blocks: bool, seed: int) -> Found:
        def look(answer: Answer) -> tuple[_State, Tensor | None, dict[str, Tensor], Tensor | None]:
            if answer.z is None or not before:
                return _State.of(answer), answer.slope(now), {}, None
            guess = self.cotangents.estimate(answer, now, seed)
            whole = {"output_change_msq": guess.whole, "output_change_context_msq": guess.context}
            if guess.kl is not None:
                whole["output_change_kl"] = guess.kl
            return _State.of(answer), answer.slope(now), whole, guess.blocks

        old, slope, changes, per_block = self.probe(before, look)
        whole = _described(old)
        if not before:
            return _placed(whole)
        whole |= _updated(old, changes, self.cotangents.standard_error)
        if old.loss is not None:
            # Each position's loss is off by a rounding, and the mean of N by a sqrt(N)-th of it.
            rounding = 8 * _HALF / (1 if old.z is None else len(old.z)) ** 0.5
            whole |= _losses(old.loss, self.probe(now, _State.of).loss, slope, old.supervised, rounding)
        return _placed(whole, self.blocks, per_block, self.cotangents.standard_error)


def _described(old: _State) -> dict[str, Tensor]:
    """What the probe says before the update."""
    found: dict[str, Tensor] = {}
    if old.z is not None:
        total, context = mean_square(old.z, old.weights), _context(old, old.z)
        found["output_msq"] = _finite(total)
        found["probe_context_share"] = torch.where(total == 0, torch.nan, _of_several(old, _finite(context / total)))
    if old.loss is not None:
        found["probe_loss"] = torch.where(old.supervised, _finite(old.loss), torch.nan)
    return found


def _differences(old: _State, new: _State) -> dict[str, Tensor]:
    """What the whole update does to the output."""
    if old.z is None or new.z is None:
        return {}
    change = new.z - old.z
    found = {
        "output_change_msq": mean_square(change, old.weights),
        "output_change_context_msq": _context(old, change),
    }
    if old.classes:
        found["output_change_kl"] = kl_divergence(old.z, change, old.weights)
    return _updated(old, found, 0.0)


def _updated(old: _State, changes: Mapping[str, Tensor], error: float) -> dict[str, Tensor]:
    """With the error; nothing is read of a step that the optimizer skipped or took with a learning rate of 0."""
    if not changes:
        return {}
    whole = changes["output_change_msq"]
    found = {name: _finite(value) for name, value in changes.items()}
    found["output_change_context_msq"] = _of_several(old, found["output_change_context_msq"])
    found["output_change_error"] = torch.full_like(whole, error)
    return {name: torch.where(whole == 0, torch.nan, value) for name, value in found.items()}


def _context(old: _State, x: Tensor) -> Tensor:
    """Mean square of the part of x that differs between positions."""
    return mean_square(x, old.weights, mean(x, old.weights))


def _of_several(old: _State, value: Tensor) -> Tensor:
    """NaN where a single position counts: it differs from nothing."""
    assert old.z is not None
    if old.weights is None:
        return value if len(old.z) > 1 else torch.full_like(value, torch.nan)
    return torch.where(old.weights.sum() > 1, value, torch.nan)


def _finite(value: Tensor) -> Tensor:
    """Inf: what was read and is not finite."""
    return torch.where(torch.isfinite(value), value, torch.inf)


def _losses(
    old: Tensor, new: Tensor | None, slope: Tensor | None, supervised: Tensor, rounding: float
) -> dict[str, Tensor]:
    """What the update does to the probe's loss, and what its gradient promised."""
    if new is None or slope is None:
        return {}
    # Two losses that differ in their last bits only say nothing of the update.
    readable = supervised & ~(slope.abs() < rounding * old.abs())
    return {
        "actual_loss_change": torch.where(readable, _finite(new - old), torch.nan),
        "predicted_loss_change": torch.where(supervised, _finite(slope), torch.nan),
    }


def _placed(
    whole: Mapping[str, Tensor],
    blocks: Mapping[Site, Sequence[str]] | None = None,
    changes: Tensor | None = None,
    error: float = 0.0,
) -> Found:
    """By column."""
    found = {(name, Site("")): value for name, value in whole.items()}
    if blocks and changes is not None:
        found["block_output_change_error", Site("")] = torch.full_like(changes[0], error)
        for site, change in zip(blocks, changes, strict=True):
            found["block_output_change_msq", site] = _finite(change)
            found["block_output_msq", site] = whole["output_msq"]
    return found
