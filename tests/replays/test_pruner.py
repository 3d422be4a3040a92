"""examples/sweeps/optuna_pruner.py, with a stand-in for the few names of Optuna that it uses: it is no dependency."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from torch import nn

from tests.replays.files import diverging_losses, healthy_losses, table

EXAMPLE = Path(__file__).parents[2] / "examples/sweeps/optuna_pruner.py"


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> Any:
    optuna: Any = ModuleType("optuna")
    optuna.pruners = SimpleNamespace(BasePruner=object)
    optuna.TrialPruned = type("TrialPruned", (Exception,), {})
    monkeypatch.setitem(sys.modules, "optuna", optuna)
    spec = importlib.util.spec_from_file_location("optuna_pruner", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def test_the_pruner_stops_a_trial_that_is_critical_and_no_other(
    example: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ill, well = table(tmp_path / "ill.csv", diverging_losses()), table(tmp_path / "well.csv", healthy_losses())
    trials = [
        SimpleNamespace(number=number, user_attrs={"run_log": str(path)}) for number, path in enumerate((ill, well))
    ]
    assert [example.StopTheIll().prune(None, trial) for trial in trials] == [True, False]
    assert capsys.readouterr().out.startswith("trial 0 is stopped: ill.csv (CSV, steps 1 to 300")


def test_a_trial_that_is_to_be_pruned_ends_where_it_asks_and_leaves_its_run_log(
    example: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(example, "FOLDER", tmp_path)
    monkeypatch.setattr(example, "ASKED_EVERY", 2)
    small = nn.Sequential(nn.Embedding(256, 8), nn.LayerNorm(8), nn.Linear(8, 256))
    monkeypatch.setattr(example, "Network", lambda placement: small)
    told: dict[str, Any] = {}
    trial = SimpleNamespace(
        number=3,
        suggest_categorical=lambda name, choices: choices[0],
        set_user_attr=told.__setitem__,
        report=lambda loss, step: told.update(step=step),
        should_prune=lambda: True,
    )
    with pytest.raises(sys.modules["optuna"].TrialPruned):
        example.objective(trial)
    assert told == {"run_log": str(tmp_path / "trial-3.stabmon"), "step": 2}
    assert (tmp_path / "trial-3.stabmon").is_file()
