"""The quick part of `stabmon bench exact`, and that the bench can fail."""

import json
import sys
from collections.abc import Callable
from typing import Any

import pytest
from torch import Tensor
from typer.testing import CliRunner, Result

from stabmon.bench.exact import compare
from stabmon.bench.exact.cases import QUICK
from stabmon.bench.exact.compare import SAME_TRAINING
from stabmon.bench.exact.tolerances import TOLERANCE
from stabmon.catalog import STATISTICS
from stabmon.cli import app
from stabmon.taps import norms

ONE = ["--only", "GPT, Pre-LN / plain / fp32"]
Cell = dict[str, Any]


def bench(*options: str) -> Result:
    return CliRunner().invoke(app, ["bench", "exact", "--json", *options])


def cells(done: Result) -> list[Cell]:
    found: list[Cell] = json.loads(done.stdout.splitlines()[-1])["cells"]
    return found


@pytest.fixture(scope="module")
def quick() -> Result:
    return bench("--quick")


def test_every_statistic_agrees_with_its_second_computation(quick: Result) -> None:
    bad = [cell for cell in cells(quick) if (cell["relative_error"] or 0) > (cell["tolerance"] or 0)]
    assert bad == []
    assert quick.exit_code == 0


def test_at_least_300_values_are_compared_and_no_cell_is_empty_without_a_reason(quick: Result) -> None:
    found = cells(quick)
    keys = ["model", "loop", "precision", "statistic", "relative_error", "tolerance", "note"]
    assert all(list(cell) == keys for cell in found)
    assert sum(cell["relative_error"] is not None for cell in found) >= 300
    assert [cell for cell in found if cell["relative_error"] is None and not cell["note"]] == []


def test_what_is_no_estimate_is_within_1e_4(quick: Result) -> None:
    exact = [cell for cell in cells(quick) if cell["relative_error"] is not None and "estimates" not in cell["note"]]
    assert {cell["tolerance"] for cell in exact} == {TOLERANCE}
    assert max(cell["relative_error"] for cell in exact) <= 1e-4


def test_every_training_has_a_cell_for_every_statistic_of_the_catalog(quick: Result) -> None:
    found: dict[tuple[str, ...], set[str]] = {}
    for cell in cells(quick):
        found.setdefault((cell["model"], cell["loop"], cell["precision"]), set()).add(cell["statistic"])
    assert set(found) == {*QUICK, ("all", "all", "all")}
    assert all(found[training] == {SAME_TRAINING, *STATISTICS} for training in QUICK)


def test_both_trainings_end_at_the_same_parameters_to_the_last_bit(quick: Result) -> None:
    assert {cell["relative_error"] for cell in cells(quick) if cell["statistic"] == SAME_TRAINING} == {0.0}


def test_a_reading_that_is_a_thousandth_off_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    right: Callable[..., Tensor] = norms.similarity
    monkeypatch.setattr(norms, "similarity", lambda *rest: right(*rest) + 1e-3)
    done = bench(*ONE)
    assert done.exit_code == 1
    assert [cell["statistic"] for cell in cells(done) if (cell["relative_error"] or 0) > (cell["tolerance"] or 0)] == [
        "token_similarity"
    ]
    assert "! token_similarity / GPT, Pre-LN / plain / fp32" in done.stderr


def test_a_statistic_without_a_second_computation_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compare, "NAIVE", {name: n for name, n in compare.NAIVE.items() if name != "norm_gain"})
    done = bench(*ONE)
    assert done.exit_code == 1
    (cell,) = [cell for cell in cells(done) if cell["statistic"] == "norm_gain"]
    assert cell["note"] == "no independent computation is written for it"


def test_what_is_left_out_for_want_of_a_package_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    for package in ("transformers", "lightning"):
        monkeypatch.setitem(sys.modules, package, None)
    done = bench("--only", "U-Net, GroupNorm / plain / fp32")
    assert done.exit_code == 0
    said = " ".join(done.stderr.split())
    assert "transformers is not installed, so its models are left out: pip install 'stabmon[huggingface]'" in said
    assert "lightning is not installed, so trainings in its loop are left out" in said


def test_a_pattern_that_fits_no_training_is_one_line() -> None:
    done = bench("--only", "Perceptron")
    assert done.exit_code == 2
    assert done.stderr.startswith("stabmon: only='Perceptron' fits no training; give a part of")
    assert done.stderr.count("\n") == 1
