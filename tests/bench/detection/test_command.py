"""The command on recordings that are made up: what is in them is known beforehand."""

import json
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import ArrayLike
from typer.testing import CliRunner

from stabmon.bench.detection.judging import judge
from stabmon.bench.detection.live import run_log
from stabmon.bench.detection.plan import SEEDS, SMALL, plan
from stabmon.bench.detection.scenarios import SCENARIOS
from stabmon.bench.detection.workers import complete
from stabmon.cli import app
from stabmon.records import Run
from stabmon.runlog import RunLogWriter
from tests.detectors.series import make_series

STEPS = 150


def write(path: Path, statistics: dict[str, ArrayLike], state: str = "finished") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    log = RunLogWriter(path, Run(path.stem, 0.0))
    for snapshot in make_series(statistics):
        log.emit(snapshot, (), ())
    log.close(state)  # type: ignore[arg-type]


def log_of(base: str, folder: Path) -> Path:
    """Of that scenario of the small tier, calibration, however it is cut."""
    (found,) = (run for run in plan("small", "calibration") if run[0].name in (base, f"{base}-{SMALL[base]}"))
    return run_log(*found, folder)


def statistics(loss: np.ndarray, share: ArrayLike) -> dict[str, ArrayLike]:  # type: ignore[type-arg]
    ones = np.ones(len(loss))
    return {
        "loss": loss,
        "unigram_loss": 4.0 * ones,
        "bigram_loss": 1.4 * ones,
        "context_share": share * ones,
        "total_grad_sq": 1.0 * ones,
    }


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A stall, a healthy run, a run that blows up: of the small tier, calibration."""
    t, noise = np.arange(1, STEPS + 1), np.random.default_rng(0).normal(0, 0.02, STEPS)
    learning = 1.4 + 3 * np.exp(-t / 20) + noise
    stalled = np.maximum(0.5 * np.exp(-t / 1.5), 1e-9)
    write(log_of("stall-text", tmp_path), statistics(4 + 0.5 * np.exp(-t / 3) + noise, stalled))
    write(log_of("healthy-text-sgd", tmp_path), statistics(learning, 0.5))
    write(log_of("blow_up-markov-ramp", tmp_path), statistics(np.where(t < 80, learning, 9.0), 0.5))
    write(log_of("floor-pre", tmp_path), statistics(learning, 0.5), "running")
    return tmp_path


def bench(*options: str) -> Any:
    return CliRunner().invoke(app, ["bench", "detection", "--seeds", "calibration", *options])


def test_recordings_are_judged_without_training(folder: Path, tmp_path: Path) -> None:
    page, picture = tmp_path / "results.md", tmp_path / "leads.svg"
    options = ("--runs", str(folder), "--no-train", "--workers", "1", "--json")
    done = bench(*options, "--markdown", str(page), "--picture", str(picture))
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout.splitlines()[-1])
    assert {name: row["runs"] for name, row in found["classes"].items()} == {"STALL": 1, "BLOW-UP": 1, "HEALTHY": 1}
    assert found["classes"]["STALL"]["recall"] == 1
    assert found["false_alarms"]["critical"] == 0
    assert found["false_alarms"]["checks"] == STEPS + 99  # the ramp is injected at step 100
    assert found["runs"][log_of("stall-text", folder).stem]["alarms"][0][0] == "context_stall"
    assert len(done.stdout.splitlines()) == 1
    assert max(map(len, done.stderr.splitlines())) <= 80
    text = page.read_text()
    assert "stabmon bench detection --tier small --seeds calibration" in text
    assert "![" in text
    assert "leads.svg" in text
    drawn = ["".join(node.itertext()) for node in ET.parse(picture).getroot().iter() if node.tag.endswith("text")]
    assert {"STALL, 1 run", "BLOW-UP, 1 run", "stabmon, warning", "patience-100"} <= set(drawn)


def test_a_recording_that_did_not_end_is_not_taken(folder: Path) -> None:
    path = log_of("floor-pre", folder)
    assert path.exists()
    assert not complete(path)
    assert complete(log_of("stall-text", folder))


def test_judging_again_says_the_same(folder: Path) -> None:
    path = log_of("blow_up-markov-ramp", folder)
    first, second = judge(path), judge(path)
    assert (first.spoken, first.rules) == (second.spoken, second.rules)
    assert first.curve.loss == pytest.approx(second.curve.loss)
    assert "RMS_t>=2.3" not in first.rules  # it was not read


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--tier", "huge"), "tier is 'huge'; give one of small, full"),
        (("--seeds", "mine"), "seeds is 'mine'; give one of calibration, test"),
        (("--workers", "0"), "workers is 0; give 1 or more"),
        (("--no-train",), "leave out --no-train"),
        (("--no-train", "--runs", "nowhere"), "leave out --no-train"),
        (("--markdown", "not/there/page.md"), "folder not/there is not there"),
    ],
)
def test_a_wrong_option_is_one_line(
    options: tuple[str, ...], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = bench(*options)
    assert done.exit_code == 2
    assert said in done.stderr
    assert done.stderr.count("\n") == 1


def test_calibration_and_test_share_no_run_and_no_seed() -> None:
    runs = {part: plan("full", part) for part in SEEDS}
    seeds = {part: {seed for _, seed in found} for part, found in runs.items()}
    assert max(seeds["calibration"]) < 100 <= min(seeds["test"])
    assert len(SCENARIOS) == 98
    assert len(runs["test"]) == 6 * 98 + 3 * 45  # and three more seeds of stalls, delayed and healthy ones
    small = plan("small", "test")
    assert len(small) == len(SMALL)
    assert not {seed for _, seed in small} & seeds["test"]


def test_every_control_is_a_scenario_with_the_same_data_and_no_fault() -> None:
    by_name = {scenario.name: scenario for scenario in SCENARIOS}
    assert len(by_name) == len(SCENARIOS)
    for scenario in SCENARIOS:
        if scenario.control:
            control = by_name[scenario.control]
            assert (control.data, control.lr, control.batch, control.fault) == (
                scenario.data,
                scenario.lr,
                scenario.batch,
                None,
            )
            assert control.steps >= scenario.steps, scenario.name
