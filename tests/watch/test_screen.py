"""What a person reads, on terminals of every width."""

import json
import math
from collections.abc import Sequence
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.cells import cell_len
from rich.console import Console
from typer.testing import CliRunner

from stabmon.cli import app
from stabmon.records import Layout, Run, Site, Snapshot
from stabmon.runlog import RunLogWriter
from stabmon.watch.screen import draw
from stabmon.watch.source import Local, NoAnswer
from stabmon.watch.view import View, look
from tests.server.recorded import STARTED, Writing, alert

HOSTILE = "<b>\x1b]0;owned\x07\x1b[2J[red]\U0001f525\n"


def lines(view: View, width: int, notice: str = "") -> list[str]:
    """Without colour, as a pipe gets it."""
    out = StringIO()
    Console(file=out, width=width, highlight=False).print(draw(view, width, notice))
    return [line.rstrip() for line in out.getvalue().splitlines()]


def seen(path: Path, width: int = 100) -> str:
    return "\n".join(lines(look(Local(path)), width))


def watched(arguments: Sequence[str]) -> tuple[int, str, str]:
    """Exit code, output, errors of the command."""
    done = CliRunner().invoke(app, ["watch", *arguments], env={"COLUMNS": "100"})
    return done.exit_code, done.stdout, done.stderr


@pytest.fixture
def writing(tmp_path: Path) -> Writing:
    return Writing(tmp_path / "r1.stabmon")


def test_it_shows_the_verdict_the_loss_among_its_baselines_and_the_cost(writing: Writing) -> None:
    writing.step(59, loss=2.0)
    writing.step(loss=3.5)
    writing.close()
    view = look(Local(writing.path))
    text = "\n".join(lines(view, 100))
    assert "stabmon r1  finished  step 60  " in text
    assert f"{view.verdict.title}\n{view.verdict.text}" in text
    # The recipe of the run: bigram 2.4, unigram 3.1, uniform 5.5; the mean of 50 steps, one of which is 3.5, is 2.03.
    assert "\nloss 3.5 " in text
    assert "\nrecent mean    uniform 5.5 › unigram 3.1 › bigram 2.4 › loss 2.03\n" in text
    assert "stabmon takes 10 ms a step, 1 % (whole run 1 %)" in text


def test_each_signal_has_its_lowest_its_highest_and_its_most_changed_layer(writing: Writing) -> None:
    writing.step(40)
    rows = {line[:13].strip(): line[15:].split("since")[0].split() for line in seen(writing.path).splitlines()}
    # step x (layer + 1): from 1 and 2 at step 1 to 40 and 80 at step 40; of a square the root.
    assert rows["norm input"] == ["40", "layer", "0", "80", "layer", "1", "×40", "layer", "0", "(h.0.ln)"]
    assert rows["gradient"][:7] == ["6.32", "layer", "0", "8.94", "layer", "1", "×6.3"]


def test_an_alert_says_what_to_do_first_and_where_to_read_on(writing: Writing) -> None:
    writing.step(30, alerts=[alert(30), alert(30, "warning", detector="dead_layers", action="has dead layers. Look")])
    text = seen(writing.path)
    assert "✖ critical context_stall since step 28, layer 1 (h.1.ln)\n  First: Cut the learning rate" in text
    assert "More: stabmon runbook dead_layers" in text
    assert text.index("critical context_stall") < text.index("warning dead_layers")


def test_what_the_verdict_says_of_an_alert_is_not_said_again(writing: Writing) -> None:
    first = alert(
        30, detector="update_shock", action="has moved by 1.2. Restart with a warm-up: with Post-LN it stalls"
    )
    other = alert(30, "info", detector="flat", action="is flat. Nothing to do")
    writing.step(30, alerts=[first, other])
    view = look(Local(writing.path))
    assert "Restart with a warm-up" in view.verdict.title + view.verdict.text
    assert " ".join(seen(writing.path).split()).count("Restart with a warm-up") == 1
    assert " ".join(seen(writing.path).split()).count("Nothing to do") == 1


@pytest.mark.parametrize("width", [60, 79, 100, 140, 200])
def test_no_line_is_wider_than_the_terminal(writing: Writing, width: int) -> None:
    writing.step(200, loss=math.inf, alerts=[alert(200)])
    drawn = lines(look(Local(writing.path)), width, notice="no answer from http://somewhere: " + "why " * 30)
    assert max(map(cell_len, drawn)) <= width
    assert "norm input" in "\n".join(drawn)
    assert "h.1.ln" in "\n".join(drawn)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 0.0, 3e38, 1e-38])
def test_any_value_can_be_shown(writing: Writing, value: float) -> None:
    names = ("bigram_loss", "unigram_loss", "uniform_loss", "norm_input_msq", "norm_gain", "grad_sq", "step_seconds")
    writing.step(3, loss=value, **dict.fromkeys(names, value))
    view = look(Local(writing.path))
    text = "\n".join(lines(view, 100))
    assert "step 3" in text
    assert "nan" not in text
    assert View.model_validate_json(view.model_dump_json()) == view


@pytest.mark.parametrize("steps", [0, 1])
def test_an_empty_run_and_one_of_one_step_are_shown(writing: Writing, steps: int) -> None:
    writing.step(steps)
    text = seen(writing.path)
    assert f"running  step {steps}" in text
    assert ("no step yet" in text) == (steps == 0)


def test_names_cannot_steer_the_terminal(tmp_path: Path) -> None:
    writer = RunLogWriter(tmp_path / "r.stabmon", Run(HOSTILE, started=STARTED))
    layout = Layout((("loss", ""), ("norm_input_msq", HOSTILE)), (Site(HOSTILE, 0, HOSTILE),))
    told = alert(1, run=HOSTILE, site=HOSTILE, action=HOSTILE, remedies=(HOSTILE,), detector=HOSTILE)
    writer.emit(Snapshot(1, STARTED, np.array([2, 3], dtype=np.float32), layout), [told], ())
    writer.close("finished")
    text = seen(tmp_path / "r.stabmon", 200)
    assert not [character for character in text if character != "\n" and ord(character) < 32]
    assert text.count("<b>\ufffd]0;owned\ufffd\ufffd[2J[red]\U0001f525") >= 5


@pytest.mark.parametrize(
    ("severity", "code"), [(None, 0), ("info", 0), ("warning", 1), ("critical", 2)], ids=lambda value: str(value)
)
def test_the_exit_code_is_the_severity(tmp_path: Path, severity: Any, code: int) -> None:
    writing = Writing(tmp_path / "r1.stabmon")
    writing.step(60, alerts=[alert(60, severity)] if severity else [])
    writing.close()
    found, out, err = watched([str(writing.path), "--once"])
    assert (found, err) == (code, "")
    assert "\x1b" not in out


def test_a_run_that_failed_is_2_and_one_without_news_is_1(tmp_path: Path) -> None:
    for name, code in (("failed", 2), ("silent", 1)):
        writing = Writing(tmp_path / name / "r.stabmon")
        writing.step(60)  # years ago
        if name == "failed":
            writing.close("failed")
        assert watched([str(tmp_path / name)])[0] == code


def test_json_is_one_object_with_what_is_shown(writing: Writing) -> None:
    writing.step(60, loss=math.inf, alerts=[alert(60)])
    writing.close()
    code, out, _ = watched([str(writing.path), "--json"])
    found = json.loads(out)
    assert (code, found["run"], found["state"], found["step"], found["loss"]) == (2, "r1", "finished", 60, "Infinity")
    assert found["baselines"]["bigram"] == pytest.approx(2.4)
    (told,) = found["alerts"]
    assert (told["detector"], told["remedies"][0]) == ("context_stall", "Cut the learning rate")
    gain = next(signal for signal in found["signals"] if signal["statistic"] == "norm_gain")
    assert (gain["highest"]["value"], gain["highest"]["place"]["name"], gain["factor"]) == (120, "h.1.ln", 60)


def test_a_run_is_chosen_by_folder_and_name(tmp_path: Path) -> None:
    for name in ("r1", "r2"):
        writing = Writing(tmp_path / f"{name}.stabmon", name=name)
        writing.step(2)
        writing.close()
    assert "stabmon r2" in watched([str(tmp_path)])[1]
    assert "stabmon r1" in watched([str(tmp_path), "--run", "r1"])[1]
    code, out, err = watched([str(tmp_path), "--run", "r3"])
    assert (code, out) == (3, "")
    assert err == f"stabmon: folder {tmp_path} has no run 'r3'; there are: r2, r1\n"


@pytest.mark.parametrize("content", [None, b"", b"loss,step\n2,1\n"])
def test_what_is_no_run_log_is_one_line_and_exit_code_3(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "x.stabmon"
    if content is not None:
        path.write_bytes(content)
    code, out, err = watched([str(path), "--once"])
    assert (code, out, err.count("\n")) == (3, "", 1)
    assert str(path) in err


def test_a_run_log_that_is_gone_may_come_back(writing: Writing, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stabmon.server.standing.POLL_SECONDS", 0.0)
    writing.step(3)
    writing.close()
    source = Local(writing.path)
    assert look(source).step == 3
    kept = writing.path.read_bytes()
    writing.path.unlink()
    with pytest.raises(NoAnswer, match="is not there") as caught:
        look(source)
    assert caught.value.passing
    writing.path.write_bytes(kept)
    assert look(source).step == 3
