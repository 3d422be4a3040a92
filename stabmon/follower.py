"""What a rank other than 0 holds from its Monitor's making to its close: it measures, and rank 0 tells."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn
from torch.optim import Optimizer

from stabmon.meeting import Meeting
from stabmon.records import RunState
from stabmon.summary import Summary
from stabmon.taps.hooks import spent
from stabmon.taps.instruments import Instruments
from stabmon.taps.ranks.together import Ranks
from stabmon.taps.schedule import schedule_of


class Follower:
    """Attaches in its constructor. Has no run log and no detectors; serves what is its own."""

    def __init__(
        self,
        model: nn.Module,
        optimizers: Sequence[Optimizer],
        met: Meeting,
        ranks: Ranks,
        callback: bool = False,
    ) -> None:
        self.step = self.start_step = met.start_step
        self.closed = False
        self._schedule = schedule_of(met.settings, met.start_step)
        self._instruments = Instruments(model, optimizers, met.settings, ranks)
        self._instruments.notices.callback = callback
        self._instruments.arm(self._schedule.due(self.step + 1))
        name = met.run_name() if met.settings.serve else None
        self._summary = None if name is None else Summary(name, met.rank, ranks.size, met.settings)

    def take(self, loss: Tensor | float | None, targets: Tensor | None) -> None:
        """One optimizer step is complete."""
        with spent:
            self.step += 1
            self._instruments.collect(self.step, loss, targets, ())
            self._instruments.arm(self._schedule.due(self.step + 1))
            if self._summary:
                self._summary.take(self.step)

    def evaluated(self, loss: float) -> None:
        """Rank 0 records it."""

    def close(self, state: RunState, linger: bool = True) -> None:
        self.closed = True
        self._instruments.detach()
        if self._summary:
            self._summary.close(state, linger)
