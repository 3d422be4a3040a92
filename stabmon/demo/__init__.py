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

from stabmon.demo.hold import served_again
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
    given = {name: value for name, value in (("port", port), ("folder", folder)) if value is not None}
    monitor, losses = _train(plan, text, screen, given)
    page_url, run_log = monitor.page_url, monitor.run_log
    if as_json:
        sys.stdout.write(json.dumps(_result(screen, losses, _raised(monitor), run_log)) + "\n")
        sys.stdout.flush()
    if hold and page_url and run_log:
        with served_again(run_log, page_url):
            screen.hold(page_url)


def _train(plan: Plan, text: torch.Tensor, screen: Screen, settings: dict[str, Any]) -> tuple[Monitor, list[float]]:
    """The closed monitor and the losses. After a Ctrl-C, too, it is said how it went."""
    torch.manual_seed(plan.seed)
    model = Network(plan.placement).to(plan.device)
    optimizer = make_optimizer(plan.optimizer, model, plan.lr)
    losses: list[float] = []
    with screen.showing_the_log():
        monitor = Monitor(model, optimizer, run="demo", **settings)
        try:
            with monitor:
                screen.start(len(text))
                for loss in screen.progress(train(plan, model, optimizer, batches(text, plan.seed), monitor.step)):
                    losses.append(loss)
        finally:
            if losses:
                screen.sum_up(losses, _raised(monitor), monitor.run_log)
    return monitor, losses


def _raised(monitor: Monitor) -> list[Alert]:
    return [alert for alert in monitor.alerts if alert.state == "raised"]


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
