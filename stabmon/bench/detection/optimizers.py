"""The optimizers of the scenarios, by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

BETAS = (0.9, 0.98)


class UncorrectedAdam(torch.optim.Adam):
    """Adam whose author forgot the bias correction: the first steps are (1 - b1^t) / sqrt(1 - b2^t) times too large."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            beta_1, beta_2 = group["betas"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    state |= {name: torch.zeros_like(p) for name in ("exp_avg", "exp_avg_sq")}
                    state["step"] = torch.tensor(0.0)
                state["step"] += 1
                state["exp_avg"].lerp_(p.grad, 1 - beta_1)
                state["exp_avg_sq"].mul_(beta_2).addcmul_(p.grad, p.grad, value=1 - beta_2)
                p.addcdiv_(state["exp_avg"], state["exp_avg_sq"].sqrt().add_(group["eps"]), value=-group["lr"])


OPTIMIZERS: dict[str, Callable[[nn.Module, float], Optimizer]] = {
    "adam": lambda m, lr: torch.optim.Adam(m.parameters(), lr, betas=BETAS, fused=True),
    "adamw": lambda m, lr: torch.optim.AdamW(m.parameters(), lr, betas=BETAS, weight_decay=0.1, fused=True),
    "slow_adam": lambda m, lr: torch.optim.Adam(m.parameters(), lr, betas=(0.9, 0.999), fused=True),
    "radam": lambda m, lr: torch.optim.RAdam(m.parameters(), lr, betas=BETAS),
    "sgd": lambda m, lr: torch.optim.SGD(m.parameters(), lr, momentum=0.9),
    "uncorrected": lambda m, lr: UncorrectedAdam(m.parameters(), lr, betas=(0.9, 0.999)),
}
