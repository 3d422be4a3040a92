"""What commands write: whole or not at all, and never over what is not theirs."""

import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from stabmon.cli import app
from stabmon.cli.pages import write
from stabmon.runlog.finding import DEFAULT_FOLDER
from tests.replays.files import diverging_losses, healthy_losses, table
from tests.server.recorded import Writing

COMMAND = [sys.executable, "-c", "from stabmon.cli import main; main()"]


def call(*arguments: object) -> Result:
    return CliRunner().invoke(app, list(map(str, arguments)))


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder with two runs in its stabmon-runs, and a file beside it."""
    monkeypatch.chdir(tmp_path)
    DEFAULT_FOLDER.mkdir()
    for name in ("first", "second"):
        run = Writing(DEFAULT_FOLDER / f"{name}.stabmon", name=name)
        run.step(30)
        run.close()
    table(tmp_path / "well.csv", healthy_losses(30))
    return tmp_path


@pytest.fixture(autouse=True)
def made(monkeypatch: pytest.MonkeyPatch) -> None:
    """A short page: what is in it is tested in tests/report."""
    monkeypatch.setattr("stabmon.report.report", lambda paths, **_: f"<title>stabmon</title>{paths}")


@pytest.mark.usefixtures("here")
def test_a_runs_name_stands_for_its_run_log_in_every_command() -> None:
    assert call("report", "first").stdout == "first.html: 0.0 MB\n"
    assert "stabmon-runs/first.stabmon" in Path("first.html").read_text()
    assert call("replay", "first").stdout.startswith("first (stabmon run log, finished, steps 1 to 30")
    beside = call("compare", "second", "well.csv")
    assert beside.exit_code == 0
    assert [line.split(",")[0] for line in beside.stdout.splitlines()[:2]] == [
        "A: second (stabmon run log)",
        "B: well.csv (CSV)",
    ]


@pytest.mark.usefixtures("here")
def test_a_name_that_is_nowhere_is_told_with_those_that_are_there() -> None:
    told = call("replay", "third").stderr
    assert told.startswith("stabmon: third is not there, and no run in stabmon-runs, which has ")
    assert {"first", "second"} <= set(told.replace(",", " ").replace(";", " ").split())
    Path("loop").symlink_to("loop")
    assert "is a link that leads nowhere" in call("report", "loop").stderr


@pytest.mark.usefixtures("here")
def test_a_report_is_of_one_run_and_of_a_folder_the_newest() -> None:
    newest = call("report", DEFAULT_FOLDER)
    assert (newest.stdout, newest.stderr) == (
        "second.html: 0.0 MB\n",
        "stabmon-runs has 2 run logs; this is the newest, second.\n",
    )
    for given, words in (
        (["first", "second"], "takes one run, here are 2: first, second"),
        ([], "takes one run, none is named"),
        (["*.csv"], ""),
    ):
        told = call("report", *given)
        assert told.exit_code == (3 if words else 0)
        assert words in told.stderr
    table(Path("other.csv"), healthy_losses(30))
    assert "*.csv has 2 runs; name one of them: other.csv, well.csv" in call("report", "*.csv").stderr


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    ("out", "words"),
    [
        ("no/where.html", "the folder of no/where.html is not there; make it first"),
        ("stabmon-runs", "no file that can be written; name one, such as stabmon-runs/run.html"),
        ("-", "no file that can be written; name one, such as run.html"),
        ("well.csv", "is the run itself and would be lost"),
        ("link", "is the run itself and would be lost"),
        ("stabmon-runs/first.stabmon", "is a run log and would be lost"),
        ("/dev/full", "No space left on device"),
    ],
)
def test_where_a_page_cannot_be_written_nothing_is_lost(out: str, words: str) -> None:
    Path("link").symlink_to("well.csv")
    before = {path: path.read_bytes() for path in Path().rglob("*") if path.is_file()}
    for command in (
        ["report", "well.csv", "--out", out],
        ["replay", "well.csv", "--html", out],
        ["compare", "second", "well.csv", "--html", out],
    ):
        result = call(*command)
        assert result.exit_code == 3
        assert words in result.stderr
        assert len(result.stderr.splitlines()) == 1
    assert {path: path.read_bytes() for path in Path().rglob("*") if path.is_file()} == before


@pytest.mark.usefixtures("here")
def test_a_page_that_was_not_named_replaces_only_a_page_of_ours() -> None:
    assert [call("report", "well.csv").exit_code for _ in range(2)] == [0, 0]
    Path("well.html").write_text("mine")
    assert "well.html is there and is no report of stabmon" in call("report", "well.csv").stderr
    assert Path("well.html").read_text() == "mine"
    assert call("report", "well.csv", "--out", "well.html").exit_code == 0


def test_a_full_disk_leaves_the_page_that_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "out.html"
    out.write_text("old")
    whole = Path.write_bytes

    def half(path: Path, data: bytes) -> int:
        whole(path, data[: len(data) // 2])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", half)
    with pytest.raises(OSError, match="not written: No space left"):
        write(out, "new" * 1000)
    assert [path.read_text() for path in tmp_path.iterdir()] == ["old"]


def test_a_link_stays_a_link_and_a_file_keeps_who_may_read_it(tmp_path: Path) -> None:
    out, link = tmp_path / "out.html", tmp_path / "link.html"
    out.write_text("old")
    out.chmod(0o640)
    link.symlink_to(out)
    assert write(link, "new") == 3
    assert (link.is_symlink(), out.read_text(), out.stat().st_mode & 0o777) == (True, "new", 0o640)


def test_replay_still_tells_what_it_found_where_its_page_cannot_be_written(here: Path) -> None:
    ill = table(here / "ill.csv", diverging_losses())
    result = call("replay", ill, "--html", "/dev/full", "--json")
    assert result.exit_code == 3
    assert '"severity": "critical"' in result.stdout
    assert '"errors": [{"file": "/dev/full"' in result.stdout


def test_where_nobody_reads_the_exit_code_tells_and_a_full_disk_is_told(tmp_path: Path) -> None:
    ill = str(table(tmp_path / "ill.csv", diverging_losses()))
    for more, ending, code in (
        ("", "| true", 2),
        ("--json --quiet", "| true", 2),
        ("", "> /dev/full", 3),
    ):
        line = f'set -o pipefail; "$@" replay "{ill}" {more} {ending}'
        done = subprocess.run(["bash", "-c", line, "bash", *COMMAND], capture_output=True, text=True, check=False)
        told = "stabmon: what was found cannot be printed: No space left on device\n" if code == 3 else ""
        assert (done.returncode, done.stderr) == (code, told), ending
    closed = subprocess.run(
        ["bash", "-c", '"$@" replay - <&-', "bash", *COMMAND], capture_output=True, text=True, check=False
    )
    assert (closed.returncode, closed.stderr) == (
        3,
        "stabmon: standard input is closed; pipe something into it, or give a file\n",
    )
