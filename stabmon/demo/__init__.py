"""`stabmon demo`: trains a small transformer on real text into a stall, and shows the alert as it comes."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from stabmon.demo.network import Network
from stabmon.demo.screen import Screen
from stabmon.demo.text import batches, entropies, read_text
from stabmon.demo.training import Plan, last_mean, make_optimizer, patience, train
from stabmon.monitor import Monitor
from stabmon.records import Alert
from stabmon.runlog import alert_summary


def demo(
    placement: str = "post",
    lr: float = 1e-3,
    warmup: int = 0,
    steps: int = 300,
    optimizer: str = "adam",
    seed: int = 0,
    device: str = "cpu",
    hold: bool = False,
    as_json: bool = False,
    port: int | None = None,
    folder: Path | None = None,
) -> None:
    """Train, show and sum up; with `as_json` the last line of stdout is the result, and the rest goes to stderr.

    Before the first step: ValueError for an option, OSError for a port or a folder.
    """
    plan = Plan(placement, lr, warmup, steps, optimizer, seed, device)
    text = read_text()
    screen = Screen(Console(stderr=as_json), *entropies(text), steps)
    torch.manual_seed(seed)
    model = Network(placement).to(device)
    updater = make_optimizer(optimizer, model, lr)
    with screen.showing_the_log(), Monitor(model, updater, run="demo", port=port, folder=folder) as monitor:
        screen.start(len(text))
        losses = screen.progress(train(plan, model, updater, batches(text, seed), monitor.step))
        if hold and monitor.url:
            screen.hold(monitor.url)
    raised = [alert for alert in monitor.alerts if alert.state == "raised"]
    screen.sum_up(losses, raised, monitor.run_log)
    if as_json:
        sys.stdout.write(json.dumps(_result(screen, losses, raised, monitor.run_log)) + "\n")


def _result(screen: Screen, losses: Sequence[float], raised: Sequence[Alert], run_log: Path | None) -> dict[str, Any]:
    loss = last_mean(losses)
    return {
        "steps": len(losses),
        "loss": loss if math.isfinite(loss) else None,
        "unigram_entropy": screen.unigram,
        "bigram_entropy": screen.bigram,
        "patience_step": patience(losses),
        "run_log": None if run_log is None else str(run_log),
        "alerts": [{k: v for k, v in alert_summary(alert).items() if k != "state"} for alert in raised],
    }
