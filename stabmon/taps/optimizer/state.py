"""How well an Adam-like optimizer's second moment fits its gradient, and what it makes of both, per block."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from stabmon.records import Site
from stabmon.taps import Due
from stabmon.taps.hooks import Hook, spent
from stabmon.taps.notices import Notice
from stabmon.taps.optimizer.adam import Moment, moments, unless_skipped
from stabmon.taps.parts import Parts

STATISTICS = ("rms_t_msq", "adam_update_msq", "epsilon_share")
NEAR_EPSILON = 10
"""sqrt(v_hat) under this many times epsilon: epsilon, not the gradient, sets the size of the update."""


class OptimizerState:
    """Read when each optimizer's step ends, while the gradient that it used is still there; means over coordinates.

    A step that was skipped, and a block whose optimizer keeps no two moments (SGD, Muon, Adafactor, LBFGS, Lion), is
    not read. The gradient is the one the moments are made of: after clipping and unscaling, Adam's own weight decay
    included.
    """

    name = "optimizer_state"

    def __init__(self, parts: Parts) -> None:
        self._sites = parts.groups.sites
        self._block_of = parts.groups.block_of
        self._due = Due(layers=True)
        self._sums = torch.zeros(len(self._sites), len(STATISTICS) + 1, dtype=torch.float32, device=parts.device)
        self._notices, self._said = parts.notices, False
        self._error: Exception | None = None
        self._handles = [o.register_step_post_hook(Hook(self._after, self._fail)) for o in parts.optimizers]

    def columns(self) -> Sequence[tuple[str, Site]]:
        return [(statistic, site) for statistic in STATISTICS for site in self._sites]

    def arm(self, due: Due) -> None:
        self._due = due
        self._sums.zero_()

    def read(self) -> Tensor:
        if self._error is not None:
            raise self._error
        means = self._sums[:, :-1] / self._sums[:, -1:]  # 0 / 0: not read
        means = torch.where((self._sums[:, -1:] > 0) & ~means.isfinite(), torch.inf, means)
        return means.T.reshape(-1)

    def weights(self) -> Tensor:
        return self._sums[:, -1].repeat(len(STATISTICS))

    def detach(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def _fail(self, error: Exception) -> None:
        self._error = error

    @torch.no_grad()
    def _after(self, optimizer: Optimizer, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        if not self._due.layers:
            return
        seen = False
        with spent:
            for found in moments(optimizer, self._block_of):
                seen = True
                row = unless_skipped(optimizer, measure(found), instead=0.0)
                self._sums[self._block_of[id(found.whole)]] += row.to(self._sums.device, non_blocking=True)
        if not seen and not self._said:
            self._said = True
            self._notices.say(
                Notice(
                    f"{type(optimizer).__name__} keeps no two moments, so rms_t, adam_update_rms and epsilon_share are "
                    "not read",
                    what="RMS_t and Adam's own update",
                    why=f"{type(optimizer).__name__} keeps no two moments.",
                )
            )


def measure(found: Moment) -> Tensor:
    """float32 [sum g^2/max(v_hat, eps^2), sum (m_hat/(sqrt(v_hat)+eps))^2, coordinates near epsilon, coordinates].

    RMS_t is the root of the first over the last (Wortsman et al. 2023, section 3.4).
    """
    against = found.made_of() / found.root_v.clamp_min(found.eps)
    near = (found.root_v < NEAR_EPSILON * found.eps).sum().float()
    size = torch.full_like(near, found.root_v.numel())
    return torch.stack((against.square().sum(), found.direction().square().sum(), near, size)) * found.count
