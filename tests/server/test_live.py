"""The page's API in front of a real training: what it tells, and that marks made there change nothing in it."""

import json
import logging
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit
from urllib.request import Request, urlopen

import numpy as np
import pytest
import torch
from torch import Tensor

from stabmon import Monitor
from stabmon.catalog import Array
from stabmon.detectors import default_detectors
from stabmon.records import Finding, Snapshot
from stabmon.runlog import read, writer
from tests.sinks.slack_server import until
from tests.trainings import Network, loader

STEPS = 32
LOUD = "loud <b>🔥</b>"


class Loud:
    """Warns at step 20, and is sure at step 28."""

    name = LOUD
    step = 0
    needs: tuple[str, ...] = ("loss",)

    def score(self, snapshot: Snapshot) -> Array:
        self.step = snapshot.step
        return np.array([2.0 if snapshot.step in (20, 28) else 0.25], np.float32)

    def explain(self, site: int) -> Finding:
        return Finding("warning" if self.step < 25 else "critical", "is loud. Do nothing", "A test.", (), {}, 20)


@dataclass
class Watched:
    """A training that was watched and, at step 25, marked."""

    parameters: list[Tensor]
    run_log: Path
    console: list[str]
    """First lines of what it told."""
    answers: dict[str, Any] = field(default_factory=dict)


def trained(folder: Path | None, answers: dict[str, Any]) -> list[Tensor]:
    """The parameters after the training; in a folder it is watched."""
    network = Network(dropout=0.1)
    optimizer = torch.optim.SGD([*network.parameters()][1:], lr=0.05)  # without the embedding
    settings: dict[str, Any] = {
        "level": "light",
        "port": 0,
        "token": "open-sesame",
        "every": 5,
        "labels": {"team": "nlp"},
    }
    detectors = [*default_detectors(), Loud()]
    monitor = Monitor(network, optimizer, detectors=detectors, folder=folder, run="r", **settings) if folder else None
    torch.manual_seed(3)
    for step, batch in enumerate(loader(count=4 * STEPS), start=1):
        loss = network(**batch)["loss"]
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if monitor:
            monitor.step(loss)
            if step == 25:
                body = {"kind": "mute", "steps": 30, "note": "known"}
                answers["marked"] = asked(monitor, f"alerts/{quote(f'{LOUD}:20')}/mark", body)
    if monitor:
        until(lambda: asked(monitor, "run")["step"] >= STEPS - 2)  # what was read last comes with a later step
        answers |= {name: asked(monitor, name) for name in ("run", "detectors", "scores", "alerts")}
        answers["profile"] = asked(monitor, "profile?statistic=norm_input_msq")
        monitor.close()
    return [parameter.detach().clone() for parameter in network.parameters()]


def asked(monitor: Monitor, path: str, body: dict[str, Any] | None = None) -> Any:
    assert monitor.url
    headers = {"authorization": "Bearer open-sesame", "content-type": "application/json"}
    data = None if body is None else json.dumps(body).encode()
    assert urlsplit(monitor.url).hostname == "127.0.0.1"
    with urlopen(Request(f"{monitor.url}/api/v1/{path}", data, headers), timeout=30) as response:
        return json.load(response)


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Watched:
    folder, answers, told = tmp_path_factory.mktemp("live"), {}, []  # type: ignore[var-annotated]

    class Ear(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            told.append(record.getMessage().partition("\n")[0])

    ear, log = Ear(), logging.getLogger("stabmon")
    log.addHandler(ear)
    try:
        with pytest.MonkeyPatch.context() as patch:
            # All steps may be over within the second after which rows are committed.
            patch.setattr(writer, "_COMMIT_SECONDS", 0.0)
            parameters = trained(folder, answers)
    finally:
        log.removeHandler(ear)
    return Watched(parameters, folder / "r.stabmon", told, answers)


def test_a_mark_changes_no_bit_of_the_training(watched: Watched) -> None:
    alone = trained(None, {})
    assert all(torch.equal(a, b) for a, b in zip(watched.parameters, alone, strict=True))


def test_a_muted_alert_is_not_told_to_people_and_stands_in_the_run_log(watched: Watched) -> None:
    assert watched.console.count("r is loud. Do nothing") == 1
    assert [a.step for a in read(watched.run_log).alerts if a.detector == LOUD and a.state == "raised"] == [20, 28]


def test_everyone_sees_the_mark(watched: Watched) -> None:
    for answer in (watched.answers["marked"], watched.answers["alerts"]):
        (first,) = [row for row in answer["alerts"] if row["id"] == f"{LOUD}:20"]
        assert (first["mark"]["kind"], first["mark"]["note"]) == ("muted", "known")
        # The newest row is of a step or two before.
        assert first["mark"]["until"] == first["mark"]["step"] + 30


def test_settings_and_surroundings_of_the_run_are_told(watched: Watched) -> None:
    run = watched.answers["run"]
    assert {"every": "5", "token": "***", "port": "0"}.items() <= run["settings"].items()
    assert "open-sesame" not in json.dumps(run)
    assert run["labels"] == {"team": "nlp"}
    surroundings = run["environment"]
    assert surroundings["torch"] == str(torch.__version__)
    assert (surroundings["device"], surroundings["optimizer"], surroundings["weights"]) == ("cpu", "SGD", "float32")
    assert surroundings["parameters"] == sum(p.numel() for p in Network().parameters())


def test_what_could_not_be_looked_at_is_told(watched: Watched) -> None:
    run = watched.answers["run"]
    (left,) = [row for row in run["unseen"] if row["what"].startswith("gradients and updates")]
    assert left["what"] == "gradients and updates of 1 parameters, such as embedding.weight"
    assert left["why"] == "No optimizer that Monitor was given holds them."
    assert left["what"] in run["verdict"]["unseen"]


def test_every_detector_tells_how_near_its_line_it_is(watched: Watched) -> None:
    lines = {line["site"]["name"]: line for line in watched.answers["scores"]["lines"]}
    assert set(lines) == {*(detector.name for detector in default_detectors()), LOUD}
    steps = watched.answers["scores"]["steps"]
    high = dict(zip(steps, lines[LOUD]["high"], strict=True))
    assert {step: high[step] for step in (19, 20, 21, 28)} == {19: 0.25, 20: 2.0, 21: 0.25, 28: 2.0}
    rows = {row["name"]: row for row in watched.answers["detectors"]["detectors"]}
    assert watched.answers["detectors"]["recorded"] is True
    assert rows["rank_trouble"]["state"] == "cannot_run"
    assert rows["context_stall"]["title"] == "every token gets the same answer"
    assert rows["context_stall"]["runbook"] == "runbook/context_stall"


def test_the_profile_begins_at_step_1_inside_its_own_band(watched: Watched) -> None:
    profile = watched.answers["profile"]
    assert (profile["first_step"], profile["latest_step"] > 20) == (1, True)
    for low, first, high in zip(profile["band"]["low"], profile["first"], profile["band"]["high"], strict=True):
        assert low == pytest.approx(0.75 * first, rel=1e-4)
        assert high == pytest.approx(1.25 * first, rel=1e-4)
