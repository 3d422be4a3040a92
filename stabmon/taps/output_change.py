"""How far one optimizer step moves the network's output on a fixed probe: in total, in parts, per block."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import torch
from torch import Tensor, nn

from stabmon.records import Site
from stabmon.taps import Due
from stabmon.taps.probe.changes import Estimated, Exact, Found
from stabmon.taps.probe.cotangents import Cotangents
from stabmon.taps.probe.probe import Probe
from stabmon.taps.probe.undisturbed import device_of

_WHOLE = (
    "probe_context_share",
    "probe_loss",
    "output_msq",
    "output_change_msq",
    "output_change_context_msq",
    "output_change_kl",
    "output_change_error",
    "block_output_change_error",
    "actual_loss_change",
    "predicted_loss_change",
)
_BLOCK = ("block_output_change_msq", "block_output_msq")
_MODEL = Site("")


class _Way(Protocol):
    """A way to find out, chosen once by what the probe can do."""

    @property
    def probe(self) -> Probe: ...

    def measure(self, before: Mapping[str, Tensor], now: Mapping[str, Tensor], blocks: bool, seed: int) -> Found:
        """`before`: theta_t; `now`: theta_{t+1} of the same parameters, none where this step took no copies."""
        ...


class OutputChange:
    """Reads the probe at theta_t and theta_{t+1}, after the optimizer step. Touches nothing of the model (see Probe).

    Changes are exact differences of float32 outputs; where the model has no such outputs, they are estimated from
    cotangents. `output_change_error` and `block_output_change_error` say which, and how sure: 0 is exact.
    """

    name = "output_change"

    def __init__(
        self,
        model: nn.Module,
        blocks: Mapping[Site, Sequence[str]],
        source: Callable[[], Probe | None],
        before: Callable[[], Mapping[str, Tensor] | None],
        estimate_blocks: bool = False,
    ) -> None:
        """`blocks`: parameter names per block, as in `model.named_parameters()`; `before`: theta_t of the parameters
        that the optimizer holds, None if this step took no copies (then the present values count as theta_t);
        `estimate_blocks`: whether each block's change is estimated at every probe, between its exact readings."""
        self._model = model
        self._blocks = blocks
        self._source = source
        self._before = before
        self._estimate_blocks = estimate_blocks
        self._way: _Way | None = None
        self._due = Due()
        self._step = 0

    def columns(self) -> Sequence[tuple[str, Site]]:
        per_block = [(statistic, site) for site in self._blocks for statistic in _BLOCK]
        return [*((statistic, _MODEL) for statistic in _WHOLE), *per_block]

    def arm(self, due: Due) -> None:
        self._due = due
        self._step += 1

    def read(self) -> Tensor:
        columns = self.columns()
        values = torch.full((len(columns),), torch.nan, dtype=torch.float32, device=device_of(self._model))
        if self._due.probe or self._due.blocks:
            found = self._measure()
            unread = torch.full_like(values[0], torch.nan)
            values = torch.stack([found[c].to(values) if c in found else unread for c in columns])
        return values

    def weights(self) -> float:
        return 1.0

    def detach(self) -> None:
        self._way = None
        self._source = lambda: None
        self._due = Due()

    def _measure(self) -> Found:
        way = self._way = self._way or self._choose()
        if way is None:
            return {}
        before = dict(self._before() or {})
        now = {name: p.detach() for name, p in way.probe.parameters.items() if name in before}
        return way.measure(before, now, self._due.blocks, self._step)

    def _choose(self) -> _Way | None:
        probe = self._source()
        if probe is None:
            return None
        cotangents = Cotangents(self._blocks.values())
        if not probe.exact:
            return Estimated(probe, self._blocks, cotangents)
        return Exact(probe, self._blocks, cotangents if self._estimate_blocks else None)
