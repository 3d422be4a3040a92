"""What the demo trains, how, and the rule that people use without stabmon."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import torch
import torch.nn.functional as F
from torch import Tensor, nn

PATIENCE = 100
OPTIMIZERS = ("adam", "adamw", "sgd")
PLACEMENTS = ("post", "pre")


@dataclass(frozen=True, slots=True)
class Plan:
    """What to train, and how. Raises ValueError on what cannot be trained."""

    placement: str = "post"
    lr: float = 1e-3
    warmup: int = 0
    steps: int = 300
    optimizer: str = "adam"
    seed: int = 0
    device: str = "cpu"

    def __post_init__(self) -> None:
        for name, value, allowed in (
            ("placement", self.placement, PLACEMENTS),
            ("optimizer", self.optimizer, OPTIMIZERS),
        ):
            if value not in allowed:
                raise ValueError(f"{name} is {value!r}; choose one of {', '.join(allowed)}")
        if not (math.isfinite(self.lr) and self.lr > 0):
            raise ValueError(f"lr is {self.lr}; give a finite number above 0, such as 1e-3")
        if self.steps < 1:
            raise ValueError(f"steps is {self.steps}; give at least 1")
        if self.warmup < 0:
            raise ValueError(f"warmup is {self.warmup}; give the number of warm-up steps, 0 for none")
        try:
            torch.empty(0, device=self.device)
        except (RuntimeError, AssertionError) as error:
            reason = str(error).splitlines()[0]
            raise ValueError(f"device is {self.device!r}, which torch cannot use ({reason}); try cpu") from None


def make_optimizer(name: str, model: nn.Module, lr: float) -> torch.optim.Optimizer:
    """Adam and AdamW with betas (0.9, 0.98), SGD with momentum 0.9."""
    if name == "sgd":
        return torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
    adam = torch.optim.Adam if name == "adam" else torch.optim.AdamW
    return adam(model.parameters(), lr=lr, betas=(0.9, 0.98))


def train(
    plan: Plan,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    batches: Iterable[tuple[Tensor, Tensor]],
    stepped: Callable[[Tensor, Tensor], None],
) -> Iterator[float]:
    """The loss of each step, as it is taken. `stepped` is called with loss and targets after each update."""
    warmup = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda done: min(1.0, (done + 1) / max(1, plan.warmup)))
    for inputs, targets in islice(batches, plan.steps):
        inputs, targets = inputs.to(plan.device), targets.to(plan.device)
        loss = F.cross_entropy(model(inputs).flatten(0, 1), targets.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        stepped(loss, targets)
        warmup.step()
        yield loss.item()


def last_mean(losses: Sequence[float], count: int = 20) -> float:
    """Mean of the last `count` losses, or of all where there are fewer."""
    last = losses[-count:]
    return sum(last) / len(last)


def patience(losses: Sequence[float], wait: int = PATIENCE) -> int | None:
    """The step (from 1) at which `wait` steps had passed without a new best loss; None if that never came."""
    best, since = math.inf, 0
    for step, loss in enumerate(losses, 1):
        if loss < best:
            best, since = loss, step
        elif step - since >= wait:
            return step
    return None
