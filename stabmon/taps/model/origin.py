"""Whether a run starts from weights that have learnt before: what is a fault in training from scratch need not be one
in theirs."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterable, Sequence

import numpy as np
from torch import nn

from stabmon.catalog import Array
from stabmon.records import PRETRAINED, Event, Site, Snapshot
from stabmon.taps.model.scale import LossScale
from stabmon.taps.notices import Notices

FAR_BELOW = 0.5
"""Nats of the first loss under the unigram loss. Untrained weights begin above it; those of 150 steps are .7 below."""
READINGS = 8
"""Unigram losses that have to come first: the counts are too few in the first steps, which puts them too high."""
FROZEN = 0.5

_log = logging.getLogger("stabmon")


class Origin:
    """Found out once: at the start by what is frozen, a few steps later by the first loss, or never."""

    columns: Sequence[tuple[str, Site]] = (("pretrained", Site("")),)

    def __init__(self, model: nn.Module, notices: Notices | None = None) -> None:
        self._scale = LossScale(notices or Notices())
        self._why: str | None = None
        self._first = self._scored = math.nan
        self._readings = 0
        self._settled = False
        self.events: list[Event] = []
        """That it was recognised, until somebody takes it out."""
        if (frozen := _frozen_share(model)) > FROZEN:
            self._say(f"{frozen:.0%} of its parameters are not trained")

    def see(self, step: int, loss: float, unigram: float, uniform: float = math.nan, scored: float = math.nan) -> Array:
        """float32[1], as in `columns`: 1 from the step on at which the run is known to have started from pretrained
        weights, else 0. `scored`: the network's own loss on the same targets, where it is known."""
        self._scale.see(step, loss, uniform, scored)
        self._scored = scored if math.isnan(self._scored) else self._scored
        if not self._settled:
            self._weigh(step, loss, unigram)
        return np.array([0.0 if self._why is None else 1.0], dtype=np.float32)

    @property
    def comparable(self) -> bool:
        """Whether the loss is in the unit of its baselines, as far as known."""
        return self._scale.factor == 1

    def resume(self, step: int, recorded: Snapshot | None, told: Iterable[str] = ()) -> None:
        """The run goes on after `step`, whose last recorded snapshot is given, if there is a run log of before; `told`:
        what its notices said is not read."""
        self._settled = True
        self._scale.resume(told)
        if recorded is None:
            self._say(f"it goes on from step {step}, and no run log tells of its beginning", step)
        elif recorded.scalar("pretrained") > 0:
            self._why = "recorded"

    def _weigh(self, step: int, loss: float, unigram: float) -> None:
        if math.isnan(self._first) and 0 < abs(loss) < math.inf:  # not that of a batch without targets: 0/0, or 0
            self._first = loss
        self._readings += not math.isnan(unigram)
        if self._readings < READINGS:
            return
        self._settled = True
        first, what = self._first * self._scale.factor, "its first loss"
        if math.isnan(self._scale.factor):
            first, what = self._scored, "what it scores on its first targets"
        if first < unigram - FAR_BELOW:
            self._say(f"{what}, {first:.3g}, is far below the unigram loss, {unigram:.3g}", step)

    def _say(self, why: str, step: int = 0) -> None:
        self._settled = True
        if self._why is None:
            self._why = why
            self.events.append(Event(step, time.time(), PRETRAINED, {"why": why}))
            _log.info("stabmon: starts from pretrained weights (%s): rules for training from scratch are off", why)


def _frozen_share(model: nn.Module) -> float:
    sizes = [(p.numel(), p.requires_grad) for p in model.parameters()]
    return sum(size for size, trained in sizes if not trained) / max(1, sum(size for size, _ in sizes))
