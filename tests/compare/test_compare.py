import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from stabmon.cli import app
from stabmon.compare import MOST, Difference, compare
from stabmon.compare.curves import CAPACITY, Curves
from tests.replays.files import diverging_losses, healthy_losses, table
from tests.server.recorded import Writing, snapshot


def written(path: Path, gain: float, model: str = "Tiny") -> Path:
    """300 steps; from step 151 on every norm's gain is that many times what it is elsewhere."""
    run = Writing(path, name=path.stem)
    for step in range(1, 301):
        made = snapshot(step, loss=2.0, values={"norm_gain": gain if step > 150 else 1.0})
        run.emit(made)
    run.close()
    return path


@pytest.fixture(scope="module")
def difference(tmp_path_factory: pytest.TempPathFactory) -> Difference:
    folder = tmp_path_factory.mktemp("runs")
    (found,) = compare([written(folder / "a.stabmon", 1.0), written(folder / "b.stabmon", 4.0)])
    return found


def test_the_statistic_that_differs_most_comes_first_with_where_and_when(difference: Difference) -> None:
    first, *others = difference.statistics
    assert (first.statistic, first.ratio, first.a, first.b) == ("norm_gain", 4.0, 1.0, 4.0)
    assert 150 <= first.first_step < first.last_step <= 300
    assert first.site in ("h.0.ln", "h.1.ln")
    assert {round(each.ratio, 6) for each in others} == {1.0}


def test_losses_that_are_the_same_number_are_told_so(difference: Difference) -> None:
    assert difference.losses is not None
    assert (difference.losses.common, difference.losses.differ_at) == (300, None)
    assert list(difference.settings) == []


def test_an_alert_that_one_run_alone_has_comes_first(tmp_path: Path) -> None:
    paths = [table(tmp_path / "well.csv", healthy_losses()), table(tmp_path / "ill.csv", diverging_losses())]
    (found,) = compare(paths)
    assert found.alerts[0].detector == "diverged"
    assert found.alerts[0].a is None
    assert found.alerts[0].b is not None
    assert found.losses is not None
    assert found.losses.differ_at == 202
    assert found.losses.part_at is not None
    assert 200 <= found.losses.part_at <= 206


def test_the_command_prints_tables_and_one_object(tmp_path: Path) -> None:
    paths = [table(tmp_path / "well.csv", healthy_losses()), table(tmp_path / "ill.csv", diverging_losses())]
    result = CliRunner().invoke(app, ["compare", *map(str, paths), "--json"])
    assert result.exit_code == 0
    (found,) = json.loads(result.stdout)["differences"]
    assert (found["a"]["run"], found["b"]["severity"]) == ("well.csv", "critical")
    assert found["losses"]["differ_at"] == 202
    assert found["alerts"][0]["detector"] == "diverged"
    assert "A: well.csv (CSV), nothing wrong" in result.stderr
    assert "The losses are the same until step 202, and part beyond noise at step 20" in result.stderr


def test_a_run_that_ended_as_nan_is_said_to_be_not_finite(tmp_path: Path) -> None:
    broken = [*healthy_losses()[:100], *[float("nan")] * 200]
    paths = [table(tmp_path / "well.csv", healthy_losses()), table(tmp_path / "ill.csv", broken)]
    shown = CliRunner().invoke(app, ["compare", *map(str, paths)]).stdout
    assert "A is at 2.031, B at not finite." in " ".join(shown.split())


def test_one_run_is_nothing_to_compare(tmp_path: Path) -> None:
    path = str(table(tmp_path / "a.csv", healthy_losses()))
    for given, here in (
        ([path], f"here is one, {path}"),
        ([path, path], f"{path} was given 2 times"),
        ([], "none is named"),
    ):
        result = CliRunner().invoke(app, ["compare", *given])
        assert (result.exit_code, result.stdout) == (3, "")
        assert result.stderr == (
            f"stabmon: compare needs two runs or more, {here}; give their files or names, or a folder or a "
            "table that has both\n"
        )


LOSSES = {"base": healthy_losses(), "ill": diverging_losses(), "twin": healthy_losses()}


def sweep(path: Path, losses: dict[str, list[float]]) -> Path:
    """Runs in one table, mixed: a row of each, step by step."""
    rows = [
        f"{name},{step},{loss}"
        for step, row in enumerate(zip(*losses.values(), strict=True), 1)
        for name, loss in zip(losses, row, strict=True)
    ]
    path.write_text("\n".join(["run_id,step,loss", *rows]) + "\n")
    return path


def names(differences: list[Difference]) -> list[tuple[str, str]]:
    return [(each.a.run, each.b.run) for each in differences]


def test_the_runs_of_one_table_are_compared_as_those_of_files_are(tmp_path: Path) -> None:
    found = compare([sweep(tmp_path / "sweep.csv", LOSSES)])
    assert names(found) == [("base", "ill"), ("base", "twin")]
    apart = compare([table(tmp_path / f"{name}.csv", losses) for name, losses in LOSSES.items()])
    assert [each.losses for each in found] == [each.losses for each in apart]
    told = [[(row.detector, row.a, row.b and row.b.alert.since) for row in each.alerts] for each in (*found, *apart)]
    assert told == [[("diverged", None, 204), ("spike", None, 203)], []] * 2


def test_runs_of_a_table_are_chosen_by_name_and_the_first_named_is_the_one_beside_which_the_others_stand(
    tmp_path: Path,
) -> None:
    path = sweep(tmp_path / "sweep.csv", LOSSES)
    assert names(compare([path], runs=["twin", "base"])) == [("twin", "base")]
    mine = logged(tmp_path / "mine.csv", range(1, 301))
    assert names(compare([mine, path], runs=["ill", "base"])) == [("mine.csv", "ill"), ("mine.csv", "base")]
    for given, words in (
        (["base", "none"], "sweep.csv has no run 'none'; it has base, ill, twin"),
        (["base"], f"compare needs two runs or more, here is one, base of {path}; give"),
    ):
        result = CliRunner().invoke(app, ["compare", str(path), *(word for name in given for word in ("--run", name))])
        assert result.exit_code == 3
        assert words in result.stderr


def test_of_more_than_ten_runs_of_a_table_some_must_be_named(tmp_path: Path) -> None:
    many = {f"r{number}": healthy_losses(30) for number in range(MOST + 1)}
    path = sweep(tmp_path / "many.csv", many)
    result = CliRunner().invoke(app, ["compare", str(path)])
    assert (result.exit_code, result.stdout) == (3, "")
    assert result.stderr == (
        f"stabmon: {path} holds more than 10 runs: r0, r1, r2, r3, r4, …; name those to compare, the first one first: "
        "--run r0 --run r1\n"
    )
    del many["r10"]
    assert len(compare([sweep(path, many)])) == 9


def test_a_long_run_is_kept_in_a_bounded_number_of_rows_with_the_newest_reading_of_each() -> None:
    curves = Curves()
    for step in range(1, 10_001):
        curves.emit(snapshot(step, loss=float(step), layers=step % 10 == 0), (), ())
    assert CAPACITY < len(curves.rows) <= 2 * CAPACITY
    assert curves.width == 8
    row = curves.rows[9_000 // 8]
    assert row.scalar("loss") == 9_007
    assert row["norm_gain"].tolist() == [9_000, 18_000]
    steps, losses = curves.losses()
    assert np.array_equal(steps, np.arange(1, 10_001))
    assert np.array_equal(losses, steps)


def logged(path: Path, steps: range, rise: float = 0.0) -> Path:
    """A loss that falls by a thousandth a step, and a gradient norm of 1, at those steps."""
    rows = "".join(f"{step},{4 - step / 1000 + rise},{1 + rise}\n" for step in steps)
    path.write_text(f"step,loss,grad_norm\n{rows}")
    return path


def test_runs_that_were_logged_at_other_steps_are_read_between_them(tmp_path: Path) -> None:
    paths = [logged(tmp_path / "a.csv", range(5, 2000, 10)), logged(tmp_path / "b.csv", range(8, 2000, 10), 1.0)]
    (found,) = compare(paths)
    assert found.losses is not None
    assert (found.losses.between, found.losses.part_at) == (True, found.losses.first_step)
    assert found.losses.last[1] - found.losses.last[0] == pytest.approx(1.0, abs=1e-6)
    assert {row.statistic: round(row.ratio, 6) for row in found.statistics}["total_grad_norm"] == 2.0


def test_runs_without_a_common_step_are_not_compared_by_step(tmp_path: Path) -> None:
    paths = [logged(tmp_path / "a.csv", range(1, 301)), logged(tmp_path / "b.csv", range(1000, 1300))]
    (found,) = compare(paths)
    assert (found.losses, list(found.statistics)) == (None, [])
    told = CliRunner().invoke(app, ["compare", *map(str, paths)])
    assert "no step with a loss in common: their steps are 1 to 300 and 1,000 to 1,299." in told.stdout
