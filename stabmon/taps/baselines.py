"""Baseline losses: what a model that ignores the context would score on the step's targets."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from stabmon.catalog import Array
from stabmon.records import Site
from stabmon.taps.forward import Forward
from stabmon.taps.ngrams import Ladder

MAX_TARGETS = 4096
"""Targets looked at per step: whole sequences, as many as fit."""

_log = logging.getLogger("stabmon")


class Baselines:
    """Chooses the step's targets on the device; scores them on the host once they have arrived there."""

    name = "baselines"
    nothing: Array = np.full(3, np.nan, dtype=np.float32)
    """What `score` gives without targets."""
    columns: Sequence[tuple[str, Site]] = tuple(
        (statistic, Site("")) for statistic in ("uniform_loss", "unigram_loss", "bigram_loss")
    )

    def __init__(self, forward: Forward) -> None:
        self._forward = forward
        self._ladder: Ladder | None = None
        self._said = False

    def targets(self, given: Tensor | None) -> Tensor | None:
        """The targets given to `step`, else the batch's `labels`, else the integer inputs; None if there are none."""
        found = given if given is not None else self._of_batch()
        if found is None or found.is_floating_point() or found.is_complex() or found.ndim == 0:
            return None
        return _first(found.detach(), MAX_TARGETS)

    def score(self, targets: np.ndarray[Any, Any] | None) -> Array:
        """float32[3] in nats per token; NaN without targets."""
        if targets is None:
            return self.nothing
        if self._ladder is None:
            self._ladder = Ladder(self._forward.output_width)
        found = self._ladder.observe(targets)
        return np.array([found.uniform, found.unigram, found.bigram], dtype=np.float32)

    def detach(self) -> None:
        """Forget all counts."""
        self._ladder = None

    def dump(self) -> bytes | None:
        """The counts, for a resume; None before the first targets."""
        return self._ladder.dump() if self._ladder else None

    def load(self, counts: bytes) -> None:
        """Go on with counts from `dump`."""
        self._ladder = Ladder.load(counts)

    def _of_batch(self) -> Tensor | None:
        call = self._forward.last
        if call is None:
            return None
        labels = call.kwargs.get("labels")
        if isinstance(labels, Tensor):
            return labels
        inputs = (v for v in (*call.args, *call.kwargs.values()) if isinstance(v, Tensor))
        found = next((v for v in inputs if v.dtype in (torch.int32, torch.int64) and v.ndim >= 2), None)
        if found is not None and not self._said:
            self._said = True
            # Which of two neighbours is called the target does not matter to n-gram counts.
            _log.info("baseline losses: no targets given, so the integer inputs, shifted by one, stand for them")
        return found


def _first(targets: Tensor, most: int) -> Tensor:
    if targets.numel() <= most:
        return targets
    if targets.ndim == 1:
        return targets[:most]
    rows = targets.reshape(-1, targets.shape[-1])
    return rows[: max(most // rows.shape[-1], 1), :most]
