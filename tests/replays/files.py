"""Files as other tools write them, small and made up."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np


def healthy_losses(count: int = 300, seed: int = 0) -> list[float]:
    """From 6 down to 2 with noise of a hundredth."""
    steps = np.arange(count)
    noise = 0.01 * np.random.default_rng(seed).standard_normal(count)
    return [float(loss) for loss in 2 + 4 * np.exp(-steps / (count / 5)) + noise]


def diverging_losses(count: int = 300, turn: int = 200) -> list[float]:
    """Healthy until that point, then up to 7 within twenty and there for good."""
    losses = healthy_losses(count)
    return [loss + 5 * min(1.0, max(0, point - turn) / 20) for point, loss in enumerate(losses)]


def trainer_state(path: Path, losses: Sequence[float], every: int = 10) -> Path:
    """Of Hugging Face."""
    history = [
        {"epoch": 0.1 * i, "learning_rate": 1e-4, "grad_norm": 1.0, "loss": loss, "step": every * i}
        for i, loss in enumerate(losses, 1)
    ]
    state = {"best_metric": None, "global_step": every * len(losses), "log_history": history, "max_steps": 10_000}
    path.write_text(json.dumps(state, indent=2), encoding="utf-8")
    return path


def table(path: Path, losses: Sequence[float]) -> Path:
    """A CSV file."""
    rows = "".join(f"{step},{loss}\n" for step, loss in enumerate(losses, 1))
    path.write_text(f"step,loss\n{rows}", encoding="utf-8")
    return path
