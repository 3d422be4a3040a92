import json
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace as with_
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from click.testing import Result
from typer.testing import CliRunner

from stabmon.catalog import Array
from stabmon.cli import app
from stabmon.detectors import default_detectors, loss_detectors
from stabmon.pipeline import build
from stabmon.records import Event, Finding, Layout, Snapshot
from stabmon.replays.needs import FROM_LEVEL, levels
from stabmon.runlog import RunLogWriter, alert_summary
from tests.replays.files import diverging_losses, healthy_losses, table, trainer_state
from tests.snapshots import RUN, snapshot

ROOT = Path(__file__).parents[2]
WITHOUT_TORCH = "import sys; sys.modules['torch'] = None; from stabmon.cli import main; main()"
(SCHEMA,) = re.findall(r"```json\n(.*?)```", (ROOT / "docs/replay.md").read_text(encoding="utf-8"), re.DOTALL)


class HighLoss:
    """Alerts where the loss is above 10, with a word that rich would take for markup."""

    name = "high_loss"
    needs: tuple[str, ...] = ("loss",)

    def __init__(self) -> None:
        self._loss = 0.0

    def score(self, snapshot: Snapshot) -> Array:
        self._loss = snapshot.scalar("loss")
        return snapshot["loss"] / np.float32(10)

    def explain(self, site: int) -> Finding:
        return Finding("warning", "has [red] loss", "why", ("do",), {"loss": self._loss}, since=1)


def recorded(path: Path, losses: Sequence[float], state: str = "finished") -> list[dict[str, Any]]:
    """Writes a run log as a live run would; returns its alerts as `--json` should print them at least."""
    layout = Layout((("loss", ""), ("total_grad_sq", "")), ())
    pipeline = build(RUN, [HighLoss(), *default_detectors()], [RunLogWriter(path, RUN)])
    for step, loss in enumerate(losses, 1):
        pipeline.feed(snapshot(step, loss, 1.0, layout=layout), [Event(step, 1.0, "evaluation", {})])
    pipeline.close("failed" if state == "failed" else "finished")
    return [alert_summary(alert) for alert in pipeline.alerts]


@pytest.fixture
def run_log(tmp_path: Path) -> Path:
    return tmp_path / "r1.stabmon"


@pytest.fixture
def high_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    """One more default detector."""
    monkeypatch.setattr("stabmon.replays.judging.default_detectors", lambda: [HighLoss(), *default_detectors()])


def replay(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["replay", *map(str, arguments)])


def as_json(*arguments: object) -> dict[str, Any]:
    """The last line of the output, checked against the schema in docs/replay.md."""
    found: dict[str, Any] = json.loads(replay(*arguments, "--json").stdout.splitlines()[-1])
    jsonschema.validate(found, json.loads(SCHEMA))
    return found


@pytest.mark.usefixtures("high_loss")
def test_a_run_log_gives_the_alerts_that_came_live(run_log: Path) -> None:
    live = recorded(run_log, [3.0] * 20 + [11.0, 12.0] + [3.0] * 30 + [float("inf")], state="failed")
    assert [(a["detector"], a["state"], a["step"]) for a in live][:1] == [("high_loss", "raised", 21)]
    assert ("nonfinite", "raised", 53) in [(a["detector"], a["state"], a["step"]) for a in live]
    found = as_json(run_log)
    assert {name: found[name] for name in ("steps", "run", "state", "run_log")} == {
        "steps": 53,
        "run": "r1",
        "state": "failed",
        "run_log": str(run_log),
    }
    assert [{name: told[name] for name in live[0]} for told in found["alerts"]] == live
    assert (found["severity"], found["exit_code"]) == ("critical", 2)


@pytest.mark.usefixtures("high_loss")
def test_with_json_stdout_is_that_line_alone_and_people_read_stderr(run_log: Path) -> None:
    recorded(run_log, [3.0, 11.0])
    result = replay(run_log, "--json")
    assert (result.exit_code, len(result.stdout.splitlines())) == (1, 1)
    assert "has [red] loss" in result.stderr
    assert replay(run_log, "--json", "--quiet").stderr == ""


@pytest.mark.usefixtures("high_loss")
def test_a_row_says_what_when_how_sure_and_what_to_do(run_log: Path) -> None:
    recorded(run_log, [3.0, 11.0])
    result = replay(run_log)
    assert (result.exit_code, result.stderr) == (1, "")
    lines = result.stdout.splitlines()
    assert lines[0] == "r1 (stabmon run log, finished, steps 1 to 2, loss 3 to 11): warning"
    assert lines[1].split("  ")[0] == "what"
    assert re.match(
        r"high_loss: the run has \[red\] loss +since step 1 +warning, 1.1 x its line +do$", lines[3].rstrip()
    )
    assert "told at 2" in lines[4]
    assert "loss 11" in lines[4]


def test_a_row_calls_a_loss_that_was_nan_or_inf_not_finite(run_log: Path) -> None:
    recorded(run_log, [3.0] * 5 + [float("inf")])
    shown = replay(run_log).stdout
    assert "loss 3 to not finite" in shown
    assert not re.search(r"\binf\b", shown)
    assert as_json(run_log)["alerts"][0]["evidence"] == {"loss": None}


def test_replay_works_where_torch_is_absent(run_log: Path) -> None:
    live = recorded(run_log, [3.0] * 5 + [float("inf")])
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH, "replay", str(run_log), "--json"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    result = json.loads(done.stdout.splitlines()[-1])
    assert (done.returncode, result["steps"]) == (2, 6)
    told = [(a["detector"], a["step"]) for a in live if a["detector"] != "high_loss"]
    assert [(a["detector"], a["step"]) for a in result["alerts"]] == told != []


def test_another_tools_file_is_judged_by_its_loss_and_what_was_not_seen_is_said(tmp_path: Path) -> None:
    state = trainer_state(tmp_path / "trainer_state.json", diverging_losses())
    found = as_json(state)
    assert (found["severity"], found["exit_code"], replay(state).exit_code) == ("critical", 2, 2)
    assert (found["first_step"], found["last_step"], found["steps"]) == (10, 3000, 300)
    assert found["format"] == "Hugging Face trainer_state.json"
    (first, *_) = [alert for alert in found["alerts"] if alert["severity"] == "critical"]
    assert first["detector"] == "diverged"
    assert 2000 <= first["since"] <= first["step"] <= 2300
    assert set(found["could_run"]) == {detector.name for detector in loss_detectors()}
    assert set(found["could_not_run"]) == {d.name for d in default_detectors()} - set(found["could_run"])
    assert found["could_not_run"]["logit_drift"] == ["log_z_msq", "log_z", "logit_max", "logit_mean"]
    assert "What the others need is not in it: " in replay(state).stdout


def test_with_several_files_the_exit_code_is_the_worst_and_a_bad_one_stops_no_other(tmp_path: Path) -> None:
    table(tmp_path / "a.csv", healthy_losses())
    trainer_state(tmp_path / "b.json", diverging_losses())
    both = as_json(tmp_path)
    assert [run["severity"] for run in both["runs"]] == [None, "critical"]
    assert (both["exit_code"], both["severity"], "run" in both) == (2, "critical", False)
    bad = tmp_path / "c.csv"
    bad.write_bytes(b"\x00\x01" * 100)
    three = as_json(tmp_path / "a.csv", bad, tmp_path / "b.json")
    assert [run["file"] for run in three["runs"]] == [str(tmp_path / "a.csv"), str(tmp_path / "b.json")]
    (error,) = three["errors"]
    assert (error["file"], three["exit_code"]) == (str(bad), 3)
    told = replay(tmp_path / "a.csv", bad, tmp_path / "b.json")
    assert told.exit_code == 3
    assert "c.csv" in told.stderr
    assert told.stdout.splitlines()[-1] == "2 runs. nothing wrong: 1, critical: 1, cannot be read: 1."


@pytest.mark.parametrize("wrong", ["missing", "empty", "junk", "prose", "folder", "no steps or loss", "cut run log"])
def test_what_cannot_be_read_is_one_line_with_its_name_and_exit_code_3(tmp_path: Path, wrong: str) -> None:
    path = tmp_path / "<b>x"
    if wrong == "folder":
        path.mkdir()
    elif wrong == "cut run log":
        recorded(path, [3.0] * 2000)
        path.write_bytes(path.read_bytes()[: 20 * 1024])
    elif wrong != "missing":
        texts = {"empty": b"", "junk": bytes(range(256)) * 9, "prose": b"Dear all,\nit broke.\n" * 9}
        path.write_bytes(texts.get(wrong, b"a,b\n1,2\n"))
    good = table(tmp_path / "good.csv", healthy_losses(30))
    before = sorted(tmp_path.rglob("*"))
    for command in (["replay", str(path), "--json"], ["report", str(path)], ["compare", str(path), str(good)]):
        result = CliRunner().invoke(app, command)
        assert result.exit_code == 3, command
        assert result.exception is None or isinstance(result.exception, SystemExit)
        assert result.stderr.startswith("stabmon: ")
        assert "<b>x" in result.stderr
        assert len(result.stderr.splitlines()) == 1
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("arguments", [[], ["--no-such-option"], ["a.csv", "--since", "soon"], ["--follow"]])
def test_a_wrong_command_is_exit_code_3_since_2_means_critical(arguments: list[str]) -> None:
    result = replay(*arguments)
    assert result.exit_code == 3
    assert "Traceback" not in result.output


def test_since_leaves_out_what_was_over_and_tells_of_what_still_stood_with_its_beginning(
    run_log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stabmon.replays.judging.default_detectors", lambda: [HighLoss()])
    recorded(run_log, [3.0] * 20 + [11.0] * 5 + [3.0] * 500 + [11.0] * 15)
    told = [(a["detector"], a["state"], a["step"]) for a in as_json(run_log)["alerts"]]
    (_, _, ended), (_, _, again) = told[1:]
    assert [state for _, state, _ in told] == ["raised", "cleared", "raised"]
    for since, kept in ((0, told), (ended, told), (ended + 1, told[2:]), (again, told[2:]), (again + 1, told[2:])):
        found = as_json(run_log, "--since", since)["alerts"]
        assert [(a["detector"], a["state"], a["step"]) for a in found] == kept
    standing = replay(run_log, "--since", 10**6)
    assert standing.exit_code == 1
    assert f"told at {again}" in standing.stdout
    assert "stands" in standing.stdout


def test_quiet_prints_nothing_and_the_exit_code_tells(tmp_path: Path) -> None:
    result = replay(trainer_state(tmp_path / "s.json", diverging_losses()), "--quiet")
    assert (result.exit_code, result.output) == (2, "")


def test_standard_input_is_a_file_named_by_a_dash(tmp_path: Path) -> None:
    text = trainer_state(tmp_path / "s.json", diverging_losses()).read_bytes()
    result = CliRunner().invoke(app, ["replay", "-", "--json", "--quiet"], input=text)
    found = json.loads(result.stdout)
    assert (found["file"], found["exit_code"], found["last_step"]) == ("-", 2, 3000)


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=["Ctrl-C", "SIGTERM", "hang-up"])
def test_a_file_that_grows_is_followed_alerts_come_as_they_are_read_and_its_end_sums_up(
    tmp_path: Path, end: signal.Signals
) -> None:
    path, losses = tmp_path / "log.jsonl", [*diverging_losses(299), float("nan")]
    lines = [json.dumps({"step": step, "loss": loss}) + "\n" for step, loss in enumerate(losses, 1)]
    path.write_text("".join(lines[:150]))
    command = [sys.executable, "-c", WITHOUT_TORCH, "replay", "--follow", str(path)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            with path.open("a") as file:
                file.write("".join(lines[150:]))
            assert process.stdout.readline().startswith("log.jsonl has a loss spike")
            assert any("has values that are not finite since step 300" in line for line in process.stdout)
            process.send_signal(end)
            rest, errors = process.communicate(timeout=60)
        finally:
            process.kill()
    assert (process.returncode, errors) == (2, "")
    assert "log.jsonl (JSON lines, steps 1 to 300" in rest


def test_a_path_that_is_not_there_stops_no_other_and_is_in_the_json(tmp_path: Path) -> None:
    good, gone = table(tmp_path / "a.csv", healthy_losses(30)), tmp_path / "gone.csv"
    found = as_json(gone, good)
    assert [run["file"] for run in found["runs"]] == [str(good)]
    assert [error["file"] for error in found["errors"]] == [str(gone)]
    assert found["exit_code"] == replay(gone, good).exit_code == 3
    assert replay(gone, good).stdout.splitlines()[-1] == "1 run. nothing wrong: 1, cannot be read: 1."
    assert as_json(gone)["runs"] == []


@pytest.mark.parametrize("name", ["a\x1b[31mb", "a\nb", "a\x9bb", "a\udcffb"])
def test_a_name_reaches_terminal_and_report_without_what_they_would_act_on(tmp_path: Path, name: str) -> None:
    path, bad = table(tmp_path / f"{name}.csv", healthy_losses(30)), tmp_path / f"{name}.txt"
    bad.write_text("hello")
    told = replay(path, bad)
    out = CliRunner().invoke(app, ["report", str(path), "--out", str(tmp_path / "out.html")])
    assert (told.exit_code, out.exit_code) == (3, 0)
    assert len(told.stderr.splitlines()) == 1
    for text in (told.output, out.output, (tmp_path / "out.html").read_text()):
        assert name not in text
    assert "a\ufffd" in told.stdout


def test_a_step_with_its_evaluation_is_one_step(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text("".join(f'{{"step": {i}, "loss": 2.5}}\n' for i in range(9)) + '{"step": 8, "val_loss": 2.6}\n')
    assert (as_json(path)["steps"], as_json(path)["last_step"]) == (9, 8)


def test_no_page_is_written_over_the_run_that_it_shows(tmp_path: Path) -> None:
    path = table(tmp_path / "log.html", healthy_losses(30))
    before = path.read_bytes()
    for command in (["replay", str(path), "--html", str(path)], ["report", str(path), "--out", str(path)]):
        result = CliRunner().invoke(app, command)
        assert result.exit_code == 3
        assert "is the run itself and would be lost" in result.stderr
    assert path.read_bytes() == before


def test_report_says_that_it_reads_no_standard_input() -> None:
    assert "not standard input" in CliRunner().invoke(app, ["report", "-"]).stderr


def test_a_run_logs_verdict_says_which_level_reads_what_was_not(run_log: Path) -> None:
    recorded(run_log, [3.0] * 3)
    (note,) = [note for note in as_json(run_log)["notes"] if "level" in note]
    assert note == (
        'This run was recorded at level="light"; level="standard" reads what logit_drift needs, level="deep" reads '
        "what attention_blowup and dead_units need."
    )
    assert levels(["attention_blowup", "logit_drift"], with_(RUN, settings={"level": "standard"})) == (
        'This run was recorded at level="standard"; level="deep" reads what attention_blowup needs.'
    )
    assert levels(["attention_blowup"], with_(RUN, settings={"level": "deep"})) == ""


def test_the_levels_are_those_of_the_readme() -> None:
    rows = re.findall(r"^\| `(\w+)` \|.*\| (\w+)(?:, [\w ]+)? \|$", (ROOT / "README.md").read_text(), re.MULTILINE)
    names = {detector.name for detector in default_detectors()}
    told = {name: level for name, level in rows if name in names}
    assert told.keys() == names
    assert {name: level for name, level in told.items() if level != "light"} == FROM_LEVEL
