"""What a rank other than 0 holds from its Monitor's making to its close: it measures, and rank 0 tells."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn
from torch.optim import Optimizer

from stabmon.settings import Settings
from stabmon.taps.hooks import spent
from stabmon.taps.instruments import Instruments
from stabmon.taps.ranks.together import Ranks
from stabmon.taps.schedule import schedule_of


class Follower:
    """Attaches in its constructor. Has no folder, no port, no detectors."""

    def __init__(
        self,
        model: nn.Module,
        optimizers: Sequence[Optimizer],
        start_step: int,
        settings: Settings,
        ranks: Ranks,
    ) -> None:
        self.step = self.start_step = start_step
        self.closed = False
        self._schedule = schedule_of(settings, start_step)
        self._instruments = Instruments(model, optimizers, settings, ranks)
        self._instruments.arm(self._schedule.due(self.step + 1))

    def take(self, loss: Tensor | float | None, targets: Tensor | None) -> None:
        """One optimizer step is complete."""
        with spent:
            self.step += 1
            self._instruments.collect(self.step, loss, targets, ())
            self._instruments.arm(self._schedule.due(self.step + 1))

    def evaluated(self, loss: float) -> None:
        """Rank 0 records it."""

    def close(self, state: str) -> None:
        self.closed = True
        self._instruments.detach()
