"""A run that is stopped and goes on hears the alerts of one that was never stopped; so does a replay."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

from stabmon import Monitor
from stabmon.detectors import default_detectors
from stabmon.pipeline import build
from stabmon.records import RESUME, Alert, Event, Run, Snapshot
from stabmon.runlog import RunLogWriter, path_of, read
from tests.detectors.series import make_series
from tests.trainings import Network, rows

STEPS = 420
RUN = Run("r", started=0.0)


def eventful() -> list[Snapshot]:
    """A stall from step 8 to 130, a spike at 240, other data from 300 on, an infinite loss at 380."""
    rng, t = np.random.default_rng(0), np.arange(1, STEPS + 1)
    batch = rng.normal(0, 0.05, STEPS)
    loss = np.where(t < 130, 3.1, 1.5 + 1.6 * np.exp(-np.maximum(t - 130, 0) / 30)) + batch
    loss[239:249] *= 1.8
    share = np.where(t < 100, 0.5 * np.exp(-np.minimum(t, 30) * 0.6), np.minimum(0.5, 1e-8 * np.exp((t - 100) * 0.6)))
    unigram, bigram = 3.1 + batch, 2.4 + batch
    loss[299:] += 2.5
    bigram[299:] += 1.5
    loss[379:] = np.inf
    grads = np.where((t < 130)[:, None], np.logspace(-8, 0, 4), 1.0)
    return make_series(
        {
            "loss": loss,
            "unigram_loss": unigram,
            "bigram_loss": bigram,
            "context_share": share,
            "grad_sq": grads,
            "learning_rate": np.full(STEPS, 1e-3),
            "skipped_steps": np.zeros(STEPS),
        }
    )


def relapsing() -> list[Snapshot]:
    """A stall whose share comes back by step 40 over layers without a gradient; it learns from step 150 on, and has
    lost that at step 300, though its tokens differ.
    """
    rng, t = np.random.default_rng(1), np.arange(1, STEPS + 1)
    batch = rng.normal(0, 0.02, STEPS)
    loss = np.interp(t, [1, 10, 150, 200, 299, 300], [5.6, 3.1, 3.1, 1.9, 1.8, 3.1]) + batch
    share = np.exp(np.interp(t, [1, 15, 30, 45], np.log([0.5, 1e-5, 1e-5, 0.05])))
    grads = np.where(((t > 75) & (t < 150))[:, None], np.logspace(-8, 0, 4), 1.0)
    return make_series(
        {
            "loss": loss,
            "unigram_loss": 3.1 + batch,
            "bigram_loss": 2.0 + batch,
            "context_share": share,
            "grad_sq": grads,
            "learning_rate": np.full(STEPS, 1e-3),
        }
    )


def heard(
    snapshots: Sequence[Snapshot], folder: Path, name: str, after: int = 0, alerts: Sequence[Alert] = ()
) -> list[Alert]:
    """All alerts of a run whose log is gone on with after that step."""
    path = path_of(folder, name)
    pipeline = build(RUN, default_detectors(), [RunLogWriter(path, RUN, resume_at=after or None)])
    events: list[Event] = []
    if after:
        recorded = read(path)
        pipeline.recall(recorded.recalled(), recorded.alerts)
        events = [Event(after, 0.0, RESUME, {"at": after})]
    for snapshot in snapshots:
        if snapshot.step > after:
            pipeline.feed(snapshot, events)
            events = []
    pipeline.close("finished")
    return pipeline.alerts


@pytest.mark.parametrize(
    ("run", "wanted"),
    [
        (eventful(), {"context_stall", "spike", "loss_shift", "nonfinite"}),
        (relapsing(), {"context_stall", "spike", "diverged"}),
    ],
)
def test_a_stop_and_a_resume_at_any_step_change_no_alert(
    run: Sequence[Snapshot], wanted: set[str], tmp_path: Path
) -> None:
    """The run goes on from ever earlier steps, so that each resume also leaves behind what came after it."""
    whole = heard(run, tmp_path, "r")
    assert wanted <= {alert.detector for alert in whole if alert.state == "raised"}, "or there is nothing to lose"
    for stop in (400, 385, 380, 379, 330, 309, 305, 302, 301, 299, 255, 245, 241, 239, 125, 101, 90, 60, 30, 11, 3):
        assert heard(run, tmp_path, "r", after=stop) == whole, stop


@pytest.mark.parametrize(("steps", "count"), [(6000, 6000), (6001, 4000 + 40), (50_000, 4000 + 920)])
def test_a_long_run_is_shown_with_its_ends_and_a_thinned_middle(tmp_path: Path, steps: int, count: int) -> None:
    path = tmp_path / "r.stabmon"
    writer = RunLogWriter(path, RUN)
    first, *_ = make_series({"loss": [1.0]})
    writer.emit(first, [], [])
    told = [Event(3333, 0.0, "batch_size", {"size": 2.0})]
    for step in range(2, steps + 1):
        values = Snapshot(step, float(step), np.array([step], np.float32), first.layout)
        writer.emit(values, [], told if step == 3333 else [])
    writer.close("failed")
    shown = list(read(path).recalled())
    taken = [snapshot.step for snapshot, _ in shown]
    assert len(taken) == count
    assert taken == sorted(taken)
    assert {*range(1, 2001), *range(steps - 1999, steps + 1)} <= set(taken)
    assert [event for _, events in shown for event in events] == told


def test_live_replayed_and_resumed_a_training_gives_the_same_alerts(tmp_path: Path) -> None:
    """Its network sees both ways, its loss is infinite in step 18, and its weights are not numbers from there on."""
    data = rows(4)
    batch = {name: torch.stack([row[name] for row in data]) for name in data[0]}

    def train(folder: Path, *parts: range) -> list[Alert]:
        network = Network()
        optimizer = torch.optim.Adam(network.parameters(), 1e-3)
        for part in parts:
            with Monitor(
                network, optimizer, folder=folder, run="r", serve=False, log_to="none", start_step=part.start
            ) as monitor:
                for done in part:
                    loss = network(**batch)["loss"] * (math.inf if done == 17 else 1.0)
                    loss.backward()
                    optimizer.step()
                    optimizer.zero_grad()
                    monitor.step(loss, targets=batch["labels"])
        return list(monitor.alerts)

    def told(alerts: Sequence[Alert]) -> list[tuple[str, str, str, int, int]]:
        return [(a.detector, a.state, a.severity, a.step, a.since) for a in alerts]

    live = train(tmp_path / "whole", range(30))
    assert told(live) == [("wiring", "raised", "warning", 12, 1), ("nonfinite", "raised", "critical", 18, 18)]
    recorded = read(path_of(tmp_path / "whole", "r"))
    again = build(recorded.run, default_detectors(), [])
    for snapshot, events in recorded.feeds():
        again.feed(snapshot, events)
    assert again.alerts == live == recorded.alerts
    assert told(train(tmp_path / "parts", range(15), range(15, 22), range(22, 30))) == told(live)
