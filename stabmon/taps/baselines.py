"""Baseline losses: what a model that ignores its input would score on the step's targets, and one that sees a token.

Shapes: B samples, T tokens.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from stabmon.catalog import Array
from stabmon.records import Site
from stabmon.taps.forward import Forward
from stabmon.taps.ngrams import Ladder
from stabmon.taps.probe.returned import output_of

MAX_TARGETS = 4096
"""Targets looked at per step: whole sequences, as many as fit, the last ones."""
_AGREE = 0.9
"""Share of targets that are the model's own next inputs, from which on it is a language model."""
_NO_TOKENS = ("mask", "type_ids", "position", "labels")
"""In names of integers that are no tokens."""

_log = logging.getLogger("stabmon")


class Baselines:
    """Chooses the step's targets on the device; scores them on the host once they have arrived there.

    The unigram is the best constant guess, for tokens and for classes alike. A bigram is scored only where the model
    is given the left neighbour of what it predicts: in classes of unrelated samples, masked tokens, tags or pixels a
    neighbour says nothing of what there is to learn. Targets that are not whole numbers have no baseline.
    """

    name = "baselines"
    nothing: Array = np.full(3, np.nan, dtype=np.float32)
    """What `score` gives without targets."""
    columns: Sequence[tuple[str, Site]] = tuple(
        (statistic, Site("")) for statistic in ("uniform_loss", "unigram_loss", "bigram_loss")
    )

    def __init__(self, forward: Forward) -> None:
        self._forward = forward
        self._ladder: Ladder | None = None
        self._output: torch.Size | None = None
        self._said = False
        forward.returned.append(self._see)

    def targets(self, given: Tensor | None) -> Tensor | None:
        """What `score` is to be given, on the device: the targets given to `step`, else the batch's `labels`, else the
        integer inputs of a language model. None if there are none."""
        inputs = list(self._inputs())
        found = self._labels() if given is None else given
        stand_in = found is None
        if found is None:
            found = self._stand_in(inputs)
        if found is None or found.is_floating_point() or found.is_complex() or found.ndim == 0:
            return None
        part = _unflattened(found.detach(), inputs)
        if part.ndim < 2 or part.numel() == 0:
            return part.reshape(-1)[-MAX_TARGETS:]
        return _marked(_last(part), self._shifts() or stand_in or _follows(part, inputs))

    def score(self, targets: np.ndarray[Any, Any] | None) -> Array:
        """float32[3] in nats per token or class; NaN without targets."""
        if targets is None:
            return self.nothing
        if self._ladder is None:
            width = self._forward.output_width if self._output is None else self._output[-1]
            known = width is not None and width > 1 and self._forward.whole
            self._ladder = Ladder(width if known else None)
        found = self._ladder.observe(_unmarked(targets))
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

    def _see(self, returned: Any) -> None:
        if self._output is None and not torch.compiler.is_compiling() and (output := output_of(returned)) is not None:
            self._output = output.shape

    def _labels(self) -> Tensor | None:
        call = self._forward.last
        labels = call.kwargs.get("labels") if call else None
        return labels if isinstance(labels, Tensor) else None

    def _inputs(self) -> Iterator[Tensor]:
        """The tokens that the latest call was given, int[B, T]."""
        call = self._forward.last
        if call is None:
            return
        named = {name: value for name, value in call.kwargs.items() if not any(part in name for part in _NO_TOKENS)}
        for value in (*call.args, *named.values()):
            if isinstance(value, Tensor) and value.dtype in (torch.int32, torch.int64) and value.ndim == 2:
                yield value

    def _stand_in(self, inputs: Sequence[Tensor]) -> Tensor | None:
        """The inputs, where the model predicts something at each; for all that is known, where it returns a loss only.

        Which of two neighbours is called the target does not matter to n-gram counts.
        """
        found = next((ids for ids in inputs if self._output is None or self._output[:-1] == ids.shape), None)
        if found is not None and not self._said:
            self._said = True
            _log.info(
                "stabmon: baseline losses: no targets given, so the integer inputs, shifted by one, stand for them"
            )
        return found

    def _shifts(self) -> bool:
        """Whether the model itself makes its decoder's inputs of the labels."""
        return bool(getattr(getattr(self._forward.root, "config", None), "is_encoder_decoder", False))


def _follows(targets: Tensor, inputs: Sequence[Tensor]) -> Tensor:
    """Scalar bool: whether the targets [B, T] are tokens that the model is given, there or one further on."""
    found = torch.zeros((), dtype=torch.bool, device=targets.device)
    for ids in inputs:
        if targets.ndim == 2 and ids.shape[1] == targets.shape[1]:
            # Of several micro-batches the inputs are those of the last one.
            rows = min(len(ids), len(targets))
            given, wanted = _last(ids[-rows:]).to(targets.device, non_blocking=True), _last(targets[-rows:])
            found |= _agrees(given, wanted) | _agrees(given[:, 1:], wanted[:, :-1])
    return found


def _agrees(given: Tensor, wanted: Tensor) -> Tensor:
    counted = wanted >= 0
    return ((given == wanted) & counted).sum() >= _AGREE * counted.sum().clamp(min=1)


def _unflattened(targets: Tensor, inputs: Sequence[Tensor]) -> Tensor:
    """Targets [B*T] of a language model as [B, T]."""
    shapes = (ids.shape for ids in inputs if targets.ndim == 1 and ids.numel() == targets.numel() and ids.shape[1] > 1)
    shape = next(shapes, None)
    return targets if shape is None else targets.reshape(shape)


def _marked(targets: Tensor, sequences: Tensor | bool) -> Tensor:
    """With one row more, of 1 where neighbours belong together: what is not known on the host travels along."""
    mark = torch.zeros_like(targets[:1]) + sequences
    return torch.cat((targets, mark.to(targets.dtype)))


def _unmarked(targets: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The targets, flat where a neighbour says nothing."""
    if targets.ndim < 2 or len(targets) == 0:
        return targets
    whole = targets[:-1]
    return whole if targets[-1].any() else whole.reshape(-1)


def _last(targets: Tensor) -> Tensor:
    """Of sequences [..., T] the last rows, int[rows, T], as many as may be looked at; of a longer one its start."""
    rows = targets.reshape(-1, targets.shape[-1])
    return rows[-max(MAX_TARGETS // rows.shape[-1], 1) :, :MAX_TARGETS]
