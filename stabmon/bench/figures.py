"""From pairs of measured steps to the figures of each mode."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from stabmon.settings import Settings
from stabmon.taps import Due
from stabmon.taps.schedule import PROBES_PER_BLOCK_READING, Schedule

SCALARS = Due()
LAYERS = Due(layers=True)
OUTPUT = Due(layers=True, probe=True)
BLOCKS = Due(layers=True, probe=True, blocks=True)
_MODES = {"every_step": LAYERS, "every_step_output": OUTPUT, "per_block": BLOCKS}
"""Modes in which every step reads the same."""


@dataclass(frozen=True, slots=True)
class Pair:
    """One measurement of a kind of step. Seconds per step."""

    off: float
    on: float
    host: float
    """Of the host, inside stabmon."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What was measured of one kind of step."""

    pairs: Sequence[Pair]
    waits: int
    """Device waits in a step."""

    @property
    def ratios(self) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        """With stabmon / without, float64[pair]."""
        return np.array([pair.on / pair.off for pair in self.pairs])


@dataclass(frozen=True, slots=True)
class Row:
    """What a mode costs, per step."""

    mode: str
    ratio_median: float
    ratio_p10: float
    ratio_p90: float
    host_ms: float
    device_waits: float
    pairs: int


def rows(costs: Mapping[Due, Cost]) -> list[Row]:
    """One per mode. "default" is put together from the kinds of step, each as often as it comes at the defaults."""
    each = [_row(mode, [(1.0, costs[due])]) for mode, due in _MODES.items()]
    return [_row("default", [(share, costs[due]) for due, share in default_shares().items()]), *each]


def default_shares() -> Mapping[Due, float]:
    """How often each kind of step comes at the default settings, after the dense steps; adds up to 1."""
    every, probe_every = (Settings.model_fields[name].default for name in ("every", "probe_every"))
    period = every * probe_every * PROBES_PER_BLOCK_READING
    schedule = Schedule(every, probe_every, dense_until=0)
    counts = Counter(schedule.due(step) for step in range(1, period + 1))
    return {due: count / period for due, count in counts.items()}


def _row(mode: str, parts: Sequence[tuple[float, Cost]]) -> Row:
    """A mode of which each kind of step has its share."""
    ratios = sum(share * cost.ratios for share, cost in parts)
    low, middle, high = (float(q) for q in np.quantile(ratios, (0.1, 0.5, 0.9)))
    host_ms = sum(share * 1e3 * float(np.median([pair.host for pair in cost.pairs])) for share, cost in parts)
    waits = sum(share * cost.waits for share, cost in parts)
    return Row(mode, middle, low, high, host_ms, waits, len(parts[0][1].pairs))
