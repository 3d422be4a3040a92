import json
import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from stabmon.cli import app
from stabmon.report import report
from tests.replays.files import diverging_losses, healthy_losses, table
from tests.server.recorded import Writing, alert


def embedded(page: str) -> dict[str, Any]:
    """What the page holds, with pooled lists put back."""
    (text,) = re.findall(r'<script type="application/json" id="embedded">(.*?)</script>', page, re.DOTALL)
    found: dict[str, Any] = json.loads(text)
    for run in found["runs"].values():
        for answer in (*run["series"].values(), *run["layers"].values(), *run["profile"].values(), run["scores"]):
            answer.update({key: found["pool"][answer[key]] for key in ("steps", "times", "sites") if key in answer})
    return found


def test_it_holds_the_numbers_of_the_run_log_and_the_alerts_that_came_live(tmp_path: Path) -> None:
    run = Writing(tmp_path / "r1.stabmon")
    run.step(40)
    run.step(1, loss=2.5, alerts=[alert(41)])
    run.close()
    held = embedded(report(run.path))["runs"]["r1"]
    assert held["series"]["loss"]["steps"] == list(range(1, 42))
    assert held["series"]["loss"]["lines"][0]["both"] == [2.0] * 40 + [2.5]
    layers = held["layers"]["norm_gain"]
    assert [site["name"] for site in layers["sites"]] == ["h.0.ln", "h.1.ln"]
    assert layers["values"][1] == [2.0 * step for step in range(1, 42)]
    assert held["profile"]["norm_gain"]["latest"] == [41.0, 82.0]
    assert [(told["detector"], told["open"]) for told in held["alerts"]["alerts"]] == [("context_stall", True)]
    assert (held["run"]["step"], held["run"]["state"]) == (41, "finished")


def test_a_long_run_is_thinned_and_no_extreme_is_lost(tmp_path: Path) -> None:
    losses = healthy_losses(5000)
    losses[4321] = 50.0
    held = embedded(report(table(tmp_path / "log.csv", losses)))["runs"]["log.csv"]
    (line,) = held["series"]["loss"]["lines"]
    assert 500 <= len(held["series"]["loss"]["steps"]) <= 2000
    assert max(line["high"]) == 50.0
    assert "total_grad_norm" not in held["series"]  # never read
    assert {row["name"] for row in held["run"]["statistics"]} == {"loss"}


@pytest.mark.parametrize("steps", [0, 1])
def test_a_run_that_has_hardly_begun_can_be_reported(tmp_path: Path, steps: int) -> None:
    run = Writing(tmp_path / "r1.stabmon")
    run.step(steps)
    assert embedded(report(run.path))["runs"]["r1"]["run"]["state"] == "running"
    run.close()


def test_what_another_tool_wrote_is_called_recorded_and_has_no_times_that_its_file_does_not_tell(
    tmp_path: Path,
) -> None:
    untimed = embedded(report(table(tmp_path / "log.csv", diverging_losses())))["runs"]["log.csv"]
    assert (untimed["run"]["state"], untimed["run"]["started"], untimed["run"]["time"]) == (None, None, None)
    assert untimed["run"]["verdict"]["title"].startswith("Recorded. ")
    assert {row["time"] for row in untimed["alerts"]["alerts"]} == {None}
    assert untimed["series"]["loss"]["times"] == []
    rows = "".join(f'{{"step": {step}, "loss": 2.5, "_timestamp": {1.7e9 + step}}}\n' for step in range(1, 31))
    (tmp_path / "log.jsonl").write_text(rows)
    timed = embedded(report(tmp_path / "log.jsonl"))["runs"]["log.jsonl"]
    assert (timed["run"]["state"], timed["run"]["time"]) == (None, 1.7e9 + 30)
    assert timed["series"]["loss"]["times"] == [1.7e9 + step for step in range(1, 31)]


def test_values_that_are_not_finite_are_held_as_the_server_tells_them(tmp_path: Path) -> None:
    held = embedded(report(table(tmp_path / "log.csv", [3.0, float("inf"), 2.0])))["runs"]["log.csv"]
    assert held["series"]["loss"]["lines"][0]["both"] == [3.0, "Infinity", 2.0]


def test_two_runs_of_one_name_are_both_held(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
    paths = [table(tmp_path / folder / "log.csv", healthy_losses(30)) for folder in ("a", "b")]
    assert list(embedded(report(paths))["runs"]) == ["log.csv", "log.csv (2)"]


def test_nothing_in_a_name_ends_what_holds_it(tmp_path: Path) -> None:
    run = Writing(tmp_path / "r1.stabmon", name="</script><script>alert(1)</script><!--\u2028")
    run.step(2)
    run.close()
    page = report(run.path)
    assert list(embedded(page)["runs"]) == [run.run.name]
    assert page.count("<script") == page.count("</script>") == 3
    assert "alert(1)</script>" not in page


def test_the_command_writes_one_file_that_names_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    table(tmp_path / "ill.csv", diverging_losses())
    result = CliRunner().invoke(app, ["report", "ill.csv"])
    assert (result.exit_code, result.stderr) == (0, "")
    assert re.fullmatch(r"ill\.html: 1\.\d MB\n", result.stdout)
    page = (tmp_path / "ill.html").read_text(encoding="utf-8")
    assert re.findall(r"<(?:script|img|link)\b[^>]*\b(?:src|href)=\"(?!data:)", page.split('id="embedded"')[0]) == []
    assert "default-src 'none'; script-src 'sha256-" in page


def test_replay_and_compare_write_the_same_page(tmp_path: Path) -> None:
    paths = [table(tmp_path / f"{name}.csv", healthy_losses(30)) for name in ("a", "b")]
    out = tmp_path / "out.html"
    assert CliRunner().invoke(app, ["replay", str(paths[0]), "--html", str(out)]).exit_code == 0
    assert list(embedded(out.read_text(encoding="utf-8"))["runs"]) == ["a.csv"]
    assert CliRunner().invoke(app, ["compare", *map(str, paths), "--html", str(out)]).exit_code == 0
    assert list(embedded(out.read_text(encoding="utf-8"))["runs"]) == ["a.csv", "b.csv"]
    assert CliRunner().invoke(app, ["replay", *map(str, paths), "--html", str(out)]).exit_code == 3


def test_of_a_table_with_several_runs_compare_draws_those_that_it_compared(tmp_path: Path) -> None:
    path, out = tmp_path / "sweep.csv", tmp_path / "out.html"
    rows = [f"{name},{step},{2 + run - step / 100}" for step in range(1, 31) for run, name in enumerate("abc")]
    path.write_text("\n".join(["run_id,step,loss", *rows]))
    other = table(tmp_path / "other.csv", healthy_losses(30))
    given = [str(path), str(other), "--run", "c", "--run", "a", "--html", str(out)]
    assert CliRunner().invoke(app, ["compare", *given]).exit_code == 0
    runs = embedded(out.read_text(encoding="utf-8"))["runs"]
    assert list(runs) == ["c", "a", "other.csv"]
    assert [run["series"]["loss"]["lines"][0]["both"][0] for run in runs.values()][:2] == [3.99, 1.99]
