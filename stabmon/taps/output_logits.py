"""The scale of the output's logits: log Z, the largest and the mean, on some tokens of the training forward.

Shapes: B sequences, T positions, N tokens that are looked at, V values at each.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor

from stabmon.records import Site
from stabmon.taps import Due
from stabmon.taps.hooks import Hook, spent
from stabmon.taps.notices import Notice
from stabmon.taps.parts import Parts
from stabmon.taps.probe.returned import IGNORE_INDEX, output_of, predicts_classes
from stabmon.taps.readings import Readings

STATISTICS = ("log_z", "log_z_msq", "logit_max", "logit_mean")
MAX_TOKENS = 512
"""Looked at in one call, spread over the batch."""
MAX_VALUES = 2**24
"""Float32 numbers of logits that are held at once."""

_SHIFTED = re.compile(r"ForCausalLM|LMHeadModel")
"""Models whose labels are those of the next position."""


class OutputLogits:
    """Read as the root's training forward returns, where layers are due; nothing of it is kept."""

    name = "output_logits"

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._due = Due(layers=True)
        self._readings = Readings(1, ("mean", "mean", "max", "mean"), parts.device)
        self._error: Exception | None = None
        self._unreadable = False
        self._said = False
        names = {type(module).__name__ for module in parts.model.modules()}
        self._shifted = any(_SHIFTED.search(name) for name in names)
        self._hook = Hook(self._take, self._fail)
        parts.forward.returned.append(self._hook)

    def columns(self) -> Sequence[tuple[str, Site]]:
        return [(statistic, Site("")) for statistic in STATISTICS]

    def arm(self, due: Due) -> None:
        self._due = due
        self._readings.clear()

    def read(self) -> Tensor:
        if self._error is not None:
            raise self._error
        if self._unreadable and not self._said:
            self._said = True
            self._parts.notices.say(
                Notice(
                    "the model returns no logits of classes, as far as known, so log Z and their scale are not read",
                    what="log Z and the scale of the logits",
                    why="The model returns no logits of classes, as far as known.",
                ),
                logging.INFO,
            )
        return self._readings.values().reshape(-1)

    def weights(self) -> Tensor:
        return self._readings.weights().reshape(-1)

    def detach(self) -> None:
        if self._hook in self._parts.forward.returned:
            self._parts.forward.returned.remove(self._hook)

    def _fail(self, error: Exception) -> None:
        self._error = error

    def _take(self, returned: Any) -> None:
        call = self._parts.forward.last
        if not self._due.layers or call is None:
            return
        # A mapping without logits, such as a Hugging Face model without a head, has hidden states in it.
        headless = isinstance(returned, Mapping) and returned.get("logits") is None
        logits = None if headless else output_of(returned)
        if logits is None or not predicts_classes(self._parts.model, call, None, returned, logits):
            self._unreadable = True
            return
        if logits.numel() == 0:
            return
        # A clock would break a compiled graph.
        with torch.no_grad(), nullcontext() if torch.compiler.is_compiling() else spent:
            self._readings.add(0, *measure(logits.detach(), self._counted(logits, call.named("labels"))))

    def _counted(self, logits: Tensor, labels: Tensor | None) -> Tensor:
        """float32 [B, T]: 1 for a token that counts in the loss, as far as known."""
        weights = self._parts.forward.weights_of(logits, first=True)
        every = torch.ones(logits.shape[:-1], dtype=torch.float32, device=logits.device)
        counted = every if weights is None else weights
        if labels is None or labels.shape != counted.shape:
            return counted
        kept = (labels != IGNORE_INDEX).to(logits.device, non_blocking=True)
        if not self._shifted:
            return counted * kept
        return torch.cat((counted[..., :-1] * kept[..., 1:], torch.zeros_like(counted[..., :1])), dim=-1)


def measure(logits: Tensor, counted: Tensor) -> tuple[Tensor, Tensor]:
    """float32 [mean of log Z, of its square, largest |logit|, mean logit] of logits [..., V], and of how many tokens.

    log Z = ln sum exp(logits), in float32. counted: float32[...], 0 for tokens that are left out. At most 512 tokens,
    at an odd stride. NaN without a token, Inf where logits are not finite.
    """
    rows_NV, counted_N = logits.reshape(-1, logits.shape[-1]), counted.reshape(-1)
    stride = -(-len(rows_NV) // MAX_TOKENS)
    stride |= int(stride > 1)
    rows_NV, counted_N = rows_NV[::stride], counted_N[::stride] > 0
    few = max(1, MAX_VALUES // rows_NV.shape[-1])
    found = torch.cat([_of_rows(rows) for rows in rows_NV.split(few)])
    log_z, largest, mean = torch.where(counted_N.unsqueeze(-1), found, 0).unbind(-1)
    count = counted_N.sum()
    values = torch.stack((log_z.sum() / count, log_z.square().sum() / count, largest.amax(), mean.sum() / count))
    return values.nan_to_num(torch.inf, torch.inf, torch.inf).where(count > 0, torch.nan), count


def _of_rows(rows: Tensor) -> Tensor:
    """float32[N, 3]: log Z, largest |logit|, mean."""
    rows = rows.float()
    low, high = rows.aminmax(dim=-1)
    return torch.stack((rows.logsumexp(-1), torch.maximum(high, -low), rows.mean(-1)), dim=-1)
