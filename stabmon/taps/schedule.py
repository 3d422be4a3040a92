"""The three clocks: what each step reads."""

from __future__ import annotations

from dataclasses import dataclass

from stabmon.settings import Settings
from stabmon.taps import Due

PROBES_PER_BLOCK_READING = 10
"""Each block's own output change is read at every tenth probe: it costs a forward per block."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """A pure function of the step, so that all ranks agree without asking."""

    every: int
    """Steps between readings of per-layer values."""
    probe_every: int
    """Steps between readings of the output change."""
    dense_until: int
    """Everything is read every step up to this one, each block's output change in step 1 and every tenth."""

    def due(self, step: int) -> Due:
        dense = step <= self.dense_until
        probe = dense or step % self.probe_every == 0
        rare = PROBES_PER_BLOCK_READING * (1 if dense else self.probe_every)
        blocks = step % rare == 0 or (dense and step == 1)
        return Due(layers=dense or step % self.every == 0, probe=probe, blocks=probe and blocks)


def schedule_of(settings: Settings, start_step: int) -> Schedule:
    """That of a run which starts after that many steps: one that goes on has no dense steps."""
    return Schedule(settings.every, settings.probe_every, 0 if start_step else settings.dense_steps)
