"""Hundreds of runs in a table, runs in folders: what people and programs are told."""

import json
from collections.abc import Callable
from pathlib import Path

import jsonschema
import pytest
from click.testing import Result
from typer.testing import CliRunner

from stabmon.cli import app
from tests.cli.test_replay import SCHEMA
from tests.replays.files import diverging_losses, healthy_losses, table

RUNS = 200
ILL = range(7, RUNS, 8)
"""25 of them."""


def replay(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["replay", *map(str, arguments)])


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The losses of so many runs in one table: those that are ill end in NaN."""
    path = tmp_path_factory.mktemp("sweep") / "sweep.csv"
    rows = ["run_id,step,loss"]
    for run in range(RUNS):
        losses = [3.0, 2.9, 2.8, 2.7]
        cells = [*map(str, losses), "nan" if run in ILL else "2.6"]
        rows += [f"r{run},{step},{cell}" for step, cell in enumerate(cells, 1)]
    path.write_text("\n".join(rows) + "\n")
    return path


@pytest.fixture(scope="module")
def judged(sweep: Path) -> Result:
    return replay(sweep, "--json")


def test_the_json_has_every_run_and_is_as_the_schema_says(judged: Result) -> None:
    assert judged.exit_code == 2
    found = json.loads(judged.stdout, parse_constant=pytest.fail)  # NaN and Infinity are no JSON
    jsonschema.validate(found, json.loads(SCHEMA))
    assert [run["run"] for run in found["runs"]] == [f"r{run}" for run in range(RUNS)]
    assert [i for i, run in enumerate(found["runs"]) if run["severity"] == "critical"] == list(ILL)
    assert [i for i, run in enumerate(found["runs"]) if run["last_loss"] is None] == list(ILL)


def test_people_are_told_of_ten_in_full_then_of_the_worst_twenty_in_a_line_each_and_of_all_in_numbers(
    judged: Result,
) -> None:
    lines = judged.stderr.splitlines()
    assert [line.split(" ")[0] for line in lines if "(CSV" in line and "steps" in line] == [f"r{i}" for i in range(10)]
    assert "There are more than 10 runs; of the others the worst are listed in the end." in lines
    heading = next(i for i, line in enumerate(lines) if line.startswith("worst first"))
    listed = [line.split()[0] for line in lines[heading:] if line.startswith("r") and "critical" in line]
    assert listed == [f"r{run}" for run in list(ILL)[:20]]
    assert lines[-2:] == [
        "5 more have something wrong; --json tells of all.",
        "200 runs. nothing wrong: 175, critical: 25.",
    ]
    assert len(lines) < 150


def test_one_run_of_many_is_chosen_by_its_name(sweep: Path) -> None:
    chosen = replay(sweep, "--run", "r15")
    assert chosen.exit_code == 2
    assert chosen.stdout.startswith("r15 (CSV")
    for command in (["report", str(sweep), "--out", str(sweep.with_name("one.html")), "--run", "r15"],):
        assert CliRunner().invoke(app, command).exit_code == 0
    several = replay(sweep, "--quiet", "--html", sweep.with_name("all.html"))
    assert several.exit_code == 3
    assert "holds 200 runs; name the one to draw with --run" in several.stderr
    assert not sweep.with_name("all.html").exists()


@pytest.fixture
def mixed(tmp_path: Path) -> Callable[[], Result]:
    """Two runs, and a table about them, which is none."""
    table(tmp_path / "a.csv", healthy_losses(60))
    table(tmp_path / "b.csv", diverging_losses())
    header = "id,file,first_loss,last_loss,label"
    (tmp_path / "index.csv").write_text(f"{header}\n1,a.csv,6.0,2.0,healthy\n2,b.csv,6.0,7.0,diverged\n")
    return lambda: replay(tmp_path)


def test_a_table_about_runs_among_them_is_told_in_a_line_and_is_no_error(mixed: Callable[[], Result]) -> None:
    result = mixed()
    assert (result.exit_code, result.stderr) == (2, "")
    assert sum("index.csv" in line for line in result.stdout.splitlines()) == 1
    assert result.stdout.splitlines()[-1] == "2 runs. nothing wrong: 1, critical: 1."
