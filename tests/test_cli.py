import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

import pytest
from typer.testing import CliRunner

from stabmon import __version__
from stabmon.cli import app
from stabmon.detectors import default_detectors
from stabmon.pipeline import build
from stabmon.records import Layout
from stabmon.runlog import RunLogWriter
from tests.snapshots import RUN, snapshot

ROOT = Path(__file__).parent.parent
WITHOUT_TORCH = "import sys; sys.modules['torch'] = None; from stabmon.cli import main; main()"


def recorded(path: Path, losses: Sequence[float]) -> None:
    """Writes a run log as a live run would."""
    layout = Layout((("loss", ""), ("total_grad_sq", "")), ())
    pipeline = build(RUN, default_detectors(), [RunLogWriter(path, RUN)])
    for step, loss in enumerate(losses, 1):
        pipeline.feed(snapshot(step, loss, 1.0, layout=layout))
    pipeline.close("finished")


@pytest.fixture
def run_log(tmp_path: Path) -> Path:
    return tmp_path / "r1.stabmon"


def test_the_demo_without_torch_says_what_to_install() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH, "demo"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "stabmon: the demo trains, so it needs PyTorch; pip install 'stabmon[torch]'\n"


def test_version() -> None:
    assert CliRunner().invoke(app, ["--version"]).stdout == f"stabmon {__version__}\n"


def test_the_demo_gets_every_option_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[tuple[object, ...]] = []
    monkeypatch.setattr("stabmon.demo.demo", lambda *args: given.append(args))
    options = "--placement pre --lr 5e-4 --warmup 30 --steps 7 --optimizer sgd --seed 3 --device cpu --hold --json"
    result = CliRunner().invoke(app, ["demo", *options.split(), "--port", "0", "--folder", "logs"])
    assert result.exit_code == 0
    assert given == [("pre", 5e-4, 30, 7, "sgd", 3, "cpu", True, True, 0, Path("logs"))]


def test_the_demos_defaults_are_the_functions_own(monkeypatch: pytest.MonkeyPatch) -> None:
    import inspect

    import stabmon.demo

    wanted = tuple(p.default for p in inspect.signature(stabmon.demo.demo).parameters.values())
    given: list[tuple[object, ...]] = []
    monkeypatch.setattr("stabmon.demo.demo", lambda *args: given.append(args))
    CliRunner().invoke(app, ["demo"])
    assert given == [wanted]


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (ValueError("lr=-1 is not allowed"), "stabmon: lr=-1 is not allowed"),
        (OSError(98, "port=7466 is taken"), "stabmon: port=7466 is taken"),
        (FileNotFoundError(2, "No such file", "a.py"), "stabmon: No such file: a.py"),
    ],
)
def test_what_the_demo_refuses_is_one_line(monkeypatch: pytest.MonkeyPatch, error: Exception, line: str) -> None:
    def refuse(*_: object) -> None:
        raise error

    monkeypatch.setattr("stabmon.demo.demo", refuse)
    result = CliRunner().invoke(app, ["demo"])
    assert (result.exit_code, result.stderr) == (2, f"{line}\n")


@contextmanager
def serving(folder: Path, *options: str, **environment: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", WITHOUT_TORCH, "serve", str(folder), "--port", "0", *options]
    known = {name: value for name, value in os.environ.items() if name != "SSH_CONNECTION"}
    with subprocess.Popen(
        command, cwd=ROOT, env={**known, **environment}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()  # else a test that fails here waits for ever


def test_serve_without_torch_tells_the_pages_address_and_serves_json_and_metrics(run_log: Path) -> None:
    recorded(run_log, [4.0, 3.0, 2.5])
    with serving(run_log.parent, SSH_CONNECTION="10.0.0.2 5 10.0.0.9 22", USER="me") as process:
        assert process.stdout is not None
        first = process.stdout.readline()
        url = re.fullmatch(r"Serving 1 run of .* until Ctrl-C: (http://127\.0\.0\.1:(\d+))/\?token=(\S+)\n", first)
        assert url is not None, first
        tunnel = f"ssh -N -L {url[2]}:127.0.0.1:{url[2]} me@10.0.0.9"
        assert process.stdout.readline() == f"From the machine you sit at, first: {tunnel}\n"
        with urlopen(f"{url[1]}/api/v1/run?token={url[3]}") as answer:
            summary = json.load(answer)
        assert (summary["name"], summary["step"], summary["state"]) == ("r1", 3, "finished")
        with urlopen(f"{url[1]}/metrics") as answer:
            lines = answer.read().decode().splitlines()
        assert 'stabmon_steps_total{rank="0",run="r1"} 3.0' in lines
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
        assert process.stderr is not None
        assert process.stderr.read() == ""


def test_serve_waits_for_a_folder_that_the_first_training_will_make(tmp_path: Path) -> None:
    folder = tmp_path / "stabmon-runs"
    with serving(folder, "--wait", "--token", "open-sesame", STABMON_SLACK="http://127.0.0.1:9/a/b") as process:
        assert process.stdout is not None
        address = process.stdout.readline().split()[-1].partition("?")[0]
        with urlopen(f"{address}metrics") as none:
            assert none.read() == b""
        folder.mkdir()
        recorded(folder / "r.stabmon", [4.0, 3.0])
        time.sleep(0.6)  # as long as a rendering is handed out
        with urlopen(f"{address}metrics") as some:
            assert b"stabmon_loss{" in some.read()
        process.terminate()


def test_serve_takes_the_token_from_option_or_environment(tmp_path: Path) -> None:
    for options, environment in ((["--token", "open-sesame"], {}), ([], {"STABMON_TOKEN": "open-sesame"})):
        with serving(tmp_path, "--wait", *options, **environment) as process:
            assert process.stdout is not None
            assert process.stdout.readline().endswith("/?token=open-sesame\n")
            process.terminate()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["{tmp}/nothing"], "folder {tmp}/nothing is not there; give a folder of runs, or --wait"),
        (["{tmp}/file"], "folder {tmp}/file is a file; give its folder, {tmp}"),
        (["{tmp}"], "folder {tmp} has no run log (*.stabmon); give the folder that a training writes to"),
        (["{tmp}", "--wait", "--token", "short"], "the token is not allowed: it takes 8 or more letters"),
        (["{tmp}", "--wait", "--host", "no-such-host.invalid"], "host='no-such-host.invalid' is no address"),
    ],
)
def test_serve_refuses_in_one_line_what_it_cannot_serve(tmp_path: Path, arguments: list[str], message: str) -> None:
    (tmp_path / "file").touch()
    done = CliRunner().invoke(app, ["serve", *(argument.format(tmp=tmp_path) for argument in arguments)])
    assert done.exit_code == 2
    assert done.stderr.startswith(f"stabmon: {message.format(tmp=tmp_path)}")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("command", [["serve", "."], ["demo"]])
@pytest.mark.parametrize("port", ["65536", "-1"])
def test_a_number_that_is_no_port_is_a_wrong_argument(command: list[str], port: str) -> None:
    done = CliRunner().invoke(app, [*command, "--port", port])
    assert (done.exit_code, "Invalid value for '--port'" in done.stderr) == (2, True)


def test_serve_refuses_a_malformed_webhook_before_it_serves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STABMON_SLACK", "nonsense")
    done = CliRunner().invoke(app, ["serve", str(tmp_path), "--wait"])
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith("stabmon: slack: the webhook is no web address")


def test_runbook_lists_a_line_for_each_default_detector() -> None:
    lines = CliRunner().invoke(app, ["runbook"]).stdout.splitlines()
    assert {line.partition(":")[0] for line in lines} >= {detector.name for detector in default_detectors()}
    assert "context_stall: every token gets the same answer" in lines


def test_runbook_prints_a_page_and_refuses_another_name_with_those_there_are() -> None:
    page = CliRunner().invoke(app, ["runbook", "context_stall"]).stdout
    assert page.startswith("# context_stall: ")
    assert "**What to do**" in page
    refused = CliRunner().invoke(app, ["runbook", "../records"])
    assert refused.exit_code == 2
    assert "there is no runbook '../records'; there are: " in refused.output
    assert "context_stall" in refused.output
